"""Repeat with processes that already exist, to screen candidates and for training.

The candidate is the process that was examined. The references, from which the problem was learned,
serve all its candidates, for a few workloads at a time. No process is started to time one. The
costs: differences between processes of one program are not seen, and a kept process is faster than
a new one by half a percent. So this distinguishes twice as fast from equally fast. What is shown to
users is timed in new processes (runner_groups.py). Outputs of timed calls are compared as always.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.accelerators import Accelerator
from ..verifier.cases import Case, Limits
from ..verifier.failures import side_by_side
from ..wire.programs import Program
from .runner_groups import Crew

MOST_CASES = {"cpu": 4, "cuda": 2}
"""Workloads whose references are kept. Each is two processes, with a context each on a GPU."""
KEPT_SHARE = 16
"""A sixteenth of the memory for a trial may stay with each process of the reference, while
others time and between candidates. A process that has more releases all of it."""
LET_GO_S = 30.0

LENT = ("inputs", "outputs", "committed", "aftermath")
"""What is shared with a process for trials and batches."""


class Held(Crew):
    """Runners lent for a repetition. Their user does not end them."""

    def end(self) -> None:
        """Keep the runners."""


class Kept:
    """Replace `Crews` with kept runners."""

    def __init__(self, template: Template):
        self.template = template
        self.references: dict[str, tuple[Case, Crew]] = {}
        """References of cases by workload, the last used one last."""
        self.examined: dict[str, Crew] = {}
        """The current candidate, by workload."""
        self.open_s = 0.0
        """Seconds to get all runners of the last repetition."""

    def hold(self, workload: str, runner: RunnerHandle, stack: ExitStack) -> None:
        """Take over a candidate's process, and what ends it."""
        crew = self.examined[workload] = Crew()
        crew.runners["candidate"], crew.stack = runner, stack
        runner.pause()

    def keep(self, case: Case, name: str, runner: RunnerHandle, stack: ExitStack) -> None:
        """Take over a process that the problem was learned from, as `reference` or `control`."""
        crew = self._references_of(case)
        runner.is_trusted = True
        crew.runners[name] = runner
        crew.stack.push(stack)
        self.let_go(case.accelerator)

    def take(
        self,
        case: Case,
        programs: dict[str, Program],
        limits: Limits,
        number: int,  # noqa: ARG002 - one launch after the other has the same
        rng: random.Random,
    ) -> Crew:
        """Return the programs' runners by name, with the case's state loaded; start those that are
        missing.

        Raises:
            RunnerFailure: A program could not be loaded.
        """
        started_s = time.monotonic()
        if case.remembers:  # each has made as many calls as the others, since it was started
            self.close()
            self.dismiss()
        references = self._references_of(case)

        def ready(name: str) -> RunnerHandle:
            crew = references
            if name == "candidate":
                crew = self.examined.setdefault(case.name, Crew())
            if name not in crew.runners:
                is_trusted = name != "candidate"
                opened = case.runner(
                    self.template, programs[name], limits, is_trusted=is_trusted, is_new=True
                )
                crew.runners[name] = crew.stack.enter_context(opened)
            elif case.state_slots:
                # Its examination, or the repetition before, has left another one.
                case.load_state(crew.runners[name], case.state, limits)
            crew.runners[name].pause()
            return crew.runners[name]

        names = rng.sample(list(programs), len(programs))
        lent = Held()
        lent.runners = dict(zip(names, side_by_side(ready, names), strict=True))
        self.open_s = time.monotonic() - started_s
        return lent

    @contextmanager
    def reference(self, case: Case, limits: Limits) -> Iterator[RunnerHandle]:
        """Yield the reference that candidates are timed with. A failed one is not used again."""
        try:
            yield self.take(case, {"reference": case.program}, limits, 1, random.Random()).runners[
                "reference"
            ]
        except RunnerFailure:
            self.close()
            raise

    @contextmanager
    def last_use(self, workload: str) -> Iterator[RunnerHandle | None]:
        """Yield the candidate's process, which is ended afterwards; None where there is none."""
        crew = self.examined.pop(workload, Crew())
        try:
            yield crew.runners.get("candidate")
        finally:
            crew.end()

    def let_go(self, accelerator: Accelerator) -> None:
        """Release most memory that references hold for past trials or repetitions: the next to
        time may be another verifier."""
        most_bytes = accelerator.memory_bytes() // KEPT_SHARE
        runners = [one for _, crew in self.references.values() for one in crew.runners.values()]
        for runner in runners:
            try:
                runner.let_go(LENT, most_bytes, LET_GO_S)
            except RunnerFailure:
                self.close()
                return
            runner.pause()

    def dismiss(self) -> None:
        """End the candidate."""
        while self.examined:
            self.examined.popitem()[1].end()

    def _references_of(self, case: Case) -> Crew:
        """Return the references of a case; none of them is started yet where it is a new one."""
        known, crew = self.references.pop(case.name, (None, Crew()))
        if known is not case:
            crew.end()
            crew = Crew()
            while len(self.references) >= MOST_CASES[case.accelerator.kind]:
                self.references.pop(next(iter(self.references)))[1].end()
        self.references[case.name] = (case, crew)
        return crew

    def close(self) -> None:
        """End the references. The next repetition starts others."""
        while self.references:
            self.references.popitem()[1][1].end()
