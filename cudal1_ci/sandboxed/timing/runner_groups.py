"""The processes of launches: those of several are started together.

To start a process costs a GPU's driver a tenth of a second in which it does nothing else, and a
quarter more in which others may start; in its first call libraries are initialized and kernels
loaded. Of several launches all of that goes on side by side. Those whose launch is still to come
are stopped, as all runners are that have no turn.

All three of a launch are new. A reference that is kept for the next candidate saves two thirds of
the processes, and was tried: a new process is slower than one that has made some launches, by 1 %
of a batch in its first round and by nothing in its sixth, and equal code looks 0.5 % slower.
"""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from ..forkserver.client import Template
from ..forkserver.handles import RunnerHandle
from ..verifier.cases import Case, Limits, size_of
from ..verifier.failures import side_by_side

WAITING_SHARE = 4
"""A fourth of the device's memory is for those that wait."""
CONTEXT_BYTES = 512 * 2**20
"""What a process holds on a GPU before it has a tensor."""
CALL_MULTIPLE = 4
"""Of a call's inputs: themselves, its outputs, and what it needs meanwhile."""


class Crew:
    """The runners of a launch by their names: `reference`, `candidate`, `control`."""

    def __init__(self) -> None:
        self.runners: dict[str, RunnerHandle] = {}
        self.stack = ExitStack()

    def end(self) -> None:
        """All of them, side by side."""
        for runner in self.runners.values():
            runner.kill()
        self.stack.close()


class Crews:
    """Those of one candidate on one workload."""

    def __init__(self, template: Template):
        self.template = template
        self.waiting: list[Crew] = []
        self.of: tuple[Case, dict[str, dict[str, Any]]] | None = None
        """What those that wait were started for."""
        self.open_s = 0.0
        """What it took to have the last one."""

    def take(
        self,
        case: Case,
        programs: dict[str, dict[str, Any]],
        limits: Limits,
        number: int,
        rng: random.Random,
    ) -> Crew:
        """A crew for the programs by name: one that waits, or else one of `number` that are
        started now. Whoever takes it ends it.

        Raises:
            RunnerFailure: A program could not be loaded. None waits then.
        """
        started_s = time.monotonic()
        if self.of is None or self.of[0] is not case or self.of[1] != programs:
            self.dismiss()
        if not self.waiting:
            self.of = (case, programs)
            self.waiting = [Crew() for _ in range(number)]
            try:
                self._start(case, programs, limits, rng)
            except BaseException:
                self.dismiss()
                raise
        self.open_s = time.monotonic() - started_s
        return self.waiting.pop()

    def reference(self, case: Case, limits: Limits) -> AbstractContextManager[RunnerHandle]:
        """One that nobody takes turns with, for the time of the block."""
        return case.runner(self.template, case.program, limits, is_trusted=True, is_new=True)

    def _start(
        self,
        case: Case,
        programs: dict[str, dict[str, Any]],
        limits: Limits,
        rng: random.Random,
    ) -> None:
        def start(place: tuple[Crew, str]) -> None:
            crew, name = place
            is_trusted = name != "candidate"
            opened = case.runner(
                self.template, programs[name], limits, is_trusted=is_trusted, is_new=True
            )
            crew.runners[name] = crew.stack.enter_context(opened)
            if len(self.waiting) > 1:
                case.answer(crew.runners[name], limits, sets=[case.trials[0][1]])
            crew.runners[name].pause()

        places = [(crew, name) for crew in self.waiting for name in programs]
        # Which of equal processes is started first is seen in its times.
        rng.shuffle(places)
        side_by_side(start, places)

    def dismiss(self) -> None:
        """End those that wait."""
        self.of = None
        while self.waiting:
            self.waiting.pop().end()


def most_crews(case: Case, num_lanes: int, memory_bytes: int) -> int:
    """That leave most of a GPU's memory free while they wait."""
    call_bytes = CALL_MULTIPLE * sum(tensor.nbytes for tensor in case.trials[0][1].tensors)
    crew_bytes = num_lanes * (CONTEXT_BYTES + size_of(case.state_slots) + call_bytes)
    return max(1, memory_bytes // WAITING_SHARE // crew_bytes)
