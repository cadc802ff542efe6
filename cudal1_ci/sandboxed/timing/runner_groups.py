"""Start the processes of several repetitions together.

The start of a process costs a GPU's driver a tenth of a second in which it does nothing else, and a
quarter more in which others may start. In its first call libraries are initialized and kernels
loaded. For several repetitions all of that happens in parallel. Processes of later repetitions are
stopped, as all runners are that are not being timed.

All three processes of a repetition are new. Keeping a reference for the next candidate would save
two thirds of the processes. It was measured: a new process is slower than one that has made some
repetitions, by 1 % of a batch in its first round and by nothing in its sixth. Equal code looks 0.5
% slower.
"""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager, ExitStack

from ..forkserver.client import Template
from ..forkserver.handles import RunnerHandle
from ..verifier.cases import Case, Limits, size_of
from ..verifier.failures import side_by_side
from ..wire.programs import Program

WAITING_SHARE = 4
"""A fourth of the device's memory is for processes that wait."""
CONTEXT_BYTES = 512 * 2**20
"""Memory of a process on a GPU before it has a tensor."""
CALL_MULTIPLE = 4
"""Multiple of the size of a call's inputs: the inputs, its outputs, and its temporary memory."""


class Crew:
    """The runners of a repetition by their names: `reference`, `candidate`, `control`."""

    def __init__(self) -> None:
        self.runners: dict[str, RunnerHandle] = {}
        self.stack = ExitStack()

    def end(self) -> None:
        """End all of them in parallel."""
        for runner in self.runners.values():
            runner.kill()
        self.stack.close()


class Crews:
    """The runners of one candidate on one workload."""

    def __init__(self, template: Template):
        self.template = template
        self.waiting: list[Crew] = []
        self.of: tuple[Case, dict[str, Program]] | None = None
        """The case and programs that the waiting runners were started for."""
        self.open_s = 0.0
        """Seconds to get the last group."""

    def take(
        self,
        case: Case,
        programs: dict[str, Program],
        limits: Limits,
        number: int,
        rng: random.Random,
    ) -> Crew:
        """Return a group of runners for the programs by name: one that waits, or one of `number`
        that are started now. The caller ends it.

        Raises:
            RunnerFailure: A program could not be loaded. None waits then.
        """
        started_s = time.monotonic()
        self.start(case, programs, limits, number, rng, calls=number > 1)
        self.open_s = time.monotonic() - started_s
        return self.waiting.pop()

    def start(
        self,
        case: Case,
        programs: dict[str, Program],
        limits: Limits,
        number: int,
        rng: random.Random,
        calls: bool = True,
    ) -> int:
        """Start groups of runners where none waits, with a call of each if it `calls`. Return how
        many wait. Raises as `take` does."""
        if self.of is None or self.of[0] is not case or self.of[1] != programs:
            self.dismiss()
        if not self.waiting:
            self.of = (case, programs)
            self.waiting = [Crew() for _ in range(number)]
            try:
                self._start(case, programs, limits, rng, calls)
            except BaseException:
                self.dismiss()
                raise
        return len(self.waiting)

    def reference(self, case: Case, limits: Limits) -> AbstractContextManager[RunnerHandle]:
        """Return a context with a reference that runs without others."""
        return case.runner(self.template, case.program, limits, is_trusted=True, is_new=True)

    def _start(
        self,
        case: Case,
        programs: dict[str, Program],
        limits: Limits,
        rng: random.Random,
        calls: bool,
    ) -> None:
        def start(place: tuple[Crew, str]) -> None:
            crew, name = place
            is_trusted = name != "candidate"
            opened = case.runner(
                self.template, programs[name], limits, is_trusted=is_trusted, is_new=True
            )
            crew.runners[name] = crew.stack.enter_context(opened)
            if calls:
                case.answer(crew.runners[name], limits, sets=[case.trials[0][1]])
            crew.runners[name].pause()

        places = [(crew, name) for crew in self.waiting for name in programs]
        # The order in which equal processes start affects their times.
        rng.shuffle(places)
        side_by_side(start, places)

    def dismiss(self) -> None:
        """End the groups that wait."""
        self.of = None
        while self.waiting:
            self.waiting.pop().end()


def most_crews(case: Case, num_lanes: int, memory_bytes: int) -> int:
    """Return how many groups may wait and leave most of a GPU's memory free."""
    call_bytes = CALL_MULTIPLE * sum(tensor.nbytes for tensor in case.trials[0][1].tensors)
    crew_bytes = num_lanes * (CONTEXT_BYTES + size_of(case.state_slots) + call_bytes)
    return max(1, memory_bytes // WAITING_SHARE // crew_bytes)
