"""A launch by processes that are there already, for training, which judges thousands.

The candidate is the process that was examined, and the references, those that the problem was
learned from, serve all its candidates: no process is started to time one. What that costs: how
processes of one program differ is not seen, and one that is kept is faster than a new one by half a
percent. So it tells twice as fast from as fast, and what somebody is shown is timed in new
processes (crews.py). What timed calls return is compared as ever.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure, RunnerHandle
from ..memory.accelerators import Accelerator
from ..verifier.cases import Case, Limits
from ..verifier.failures import side_by_side
from .runner_groups import Crew

KEPT_SHARE = 16
"""A sixteenth of the memory for a trial may stay with each process of the reference, while others
time and from one candidate to the next; who has been given more lets all of it go."""
LET_GO_S = 30.0

LENT = ("inputs", "outputs", "aftermath")
"""What is shared with a process for trials and batches."""


class Held(Crew):
    """Lent for a launch: whoever takes it ends nothing."""

    def end(self) -> None:
        """They are kept."""


class Kept:
    """Stands in for `Crews`."""

    def __init__(self, template: Template):
        self.template = template
        self.case: Case | None = None
        self.references = Crew()
        """Of that case."""
        self.examined: dict[str, Crew] = {}
        """The candidate at hand, by workload."""
        self.open_s = 0.0
        """What it took to have all of the last launch."""

    def hold(self, workload: str, runner: RunnerHandle, stack: ExitStack) -> None:
        """Take over a candidate's process, and what ends it."""
        crew = self.examined[workload] = Crew()
        crew.runners["candidate"], crew.stack = runner, stack
        runner.pause()

    def keep(self, case: Case, name: str, runner: RunnerHandle, stack: ExitStack) -> None:
        """Take over a process that the problem was learned from, as `reference` or `control`."""
        self._of(case)
        runner.is_trusted = True
        self.references.runners[name] = runner
        self.references.stack.push(stack)
        self.let_go(case.accelerator)

    def take(
        self,
        case: Case,
        programs: dict[str, dict[str, Any]],
        limits: Limits,
        number: int,  # noqa: ARG002 - one launch after the other has the same
        rng: random.Random,
    ) -> Crew:
        """Those of the programs by name, with the case's state loaded; started where there are
        none yet.

        Raises:
            RunnerFailure: A program could not be loaded.
        """
        started_s = time.monotonic()
        self._of(case)

        def ready(name: str) -> RunnerHandle:
            crew = self.references
            if name == "candidate":
                crew = self.examined.setdefault(case.name, Crew())
            if name not in crew.runners:
                is_trusted = name != "candidate"
                opened = case.runner(
                    self.template, programs[name], limits, is_trusted=is_trusted, is_new=True
                )
                crew.runners[name] = crew.stack.enter_context(opened)
            elif case.state_slots:
                # Examining it, or the launch before, has left another one.
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
        """The one that candidates are timed beside. One that failed serves no more."""
        try:
            yield self.take(case, {"reference": case.program}, limits, 1, random.Random()).runners[
                "reference"
            ]
        except RunnerFailure:
            self.close()
            raise

    @contextmanager
    def last_use(self, workload: str) -> Iterator[RunnerHandle | None]:
        """The candidate's process, which is ended afterwards; None where there is none."""
        crew = self.examined.pop(workload, Crew())
        try:
            yield crew.runners.get("candidate")
        finally:
            crew.end()

    def let_go(self, accelerator: Accelerator) -> None:
        """No reference holds much memory for trials or a launch that are over: the next one to time
        may be another judge."""
        most_bytes = accelerator.memory_bytes() // KEPT_SHARE
        for runner in self.references.runners.values():
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

    def _of(self, case: Case) -> None:
        """From here on the references are those of this case."""
        if self.case is not case:
            self.close()
            self.case = case

    def close(self) -> None:
        """End the references; the next launch has others."""
        self.references.end()
        self.references, self.case = Crew(), None
