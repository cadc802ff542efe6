"""Describe device slots: a device with a verifier of its own, on whichever host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import (
    CallCost,
    Candidate,
    Demand,
    Device,
    Evaluation,
    Problem,
    Program,
    Verdict,
    Workload,
)
from cudal1_ci.records.recording import Recording
from cudal1_ci.verification.protocol import Verifier

T = TypeVar("T")


class SlotLost(Exception):
    """The process or the machine of a slot is gone, with what was under way there."""


class DeviceSlot(Protocol):
    """A verifier on a device. Used by one thread; any thread may close it.

    `name` is the same in each run, `remark` is what has to be known of times that are measured
    here. `verifier` raises SlotLost where its process or machine is gone, and WorkerError where it
    died and a new one answers the next question.
    """

    @property
    def name(self) -> str: ...
    @property
    def device(self) -> Device: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def verifier(self) -> Verifier: ...

    def close(self) -> None:
        """End the verifier and free its device, whatever state it is in."""
        ...


class Backend(Protocol):
    """Provide slots. A slot that is lost can be opened again."""

    @property
    def num_slots(self) -> int:
        """Say how many there are at most."""
        ...

    def open(self, number: int, is_over: Callable[[], bool]) -> DeviceSlot:
        """Open the slot of that number, 0 <= number < num_slots; wait for its device until
        `is_over`.

        Raises:
            SlotLost: It could not be started, or is not wanted any more; another try may succeed.
            CudaL1Error: No try will.
        """
        ...


class LeasedVerifier:
    """The verifier of a slot until it is revoked. From then on each question raises
    KeyboardInterrupt, in whichever thread: what work does at Ctrl-C is right then too."""

    def __init__(self, slot: DeviceSlot):
        self.slot = slot
        self.has_died = False
        """Whether the verifier died since this was last set to False."""
        self._revoked = threading.Event()

    @property
    def is_revoked(self) -> bool:
        return self._revoked.is_set()

    def revoke(self) -> None:
        """End what it is at. From any thread."""
        self._revoked.set()
        self.slot.close()

    def device(self) -> Device:
        return self.slot.device

    def check(self, problem: Problem, most_s: float | None = None) -> Verdict:
        return self._ask(lambda: self.slot.verifier.check(problem, most_s))

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self._ask(lambda: self.slot.verifier.build_ahead(problem, candidates))

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterable[Candidate]:
        several = iter(self.slot.verifier.in_turn(candidates, is_over))
        while (candidate := self._ask(lambda: next(several, None))) is not None:
            yield candidate

    def screen(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        return self._ask(lambda: self.slot.verifier.screen(problem, candidate, most_s))

    def confirm(
        self, problem: Problem, candidate: Candidate, most_s: float | None = None
    ) -> Evaluation:
        return self._ask(lambda: self.slot.verifier.confirm(problem, candidate, most_s))

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        return self._ask(lambda: self.slot.verifier.evaluate(problem, candidate))

    def examine_contract(self, problem: Problem, evaluation: Evaluation) -> Evaluation:
        return self._ask(lambda: self.slot.verifier.examine_contract(problem, evaluation))

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        return self._ask(lambda: self.slot.verifier.profile(workload, is_candidate=is_candidate))

    def record(self, problem: Problem, workload: Workload) -> Recording | str:
        return self._ask(lambda: self.slot.verifier.record(problem, workload))

    def price(self, program: Program, workload: Workload, energy_s: float = 0.0) -> CallCost | str:
        return self._ask(lambda: self.slot.verifier.price(program, workload, energy_s))

    def demand(self, workload: str) -> Demand | str:
        return self._ask(lambda: self.slot.verifier.demand(workload))

    def _ask(self, question: Callable[[], T]) -> T:
        if self.is_revoked:
            raise KeyboardInterrupt
        try:
            return question()
        except Exception as error:
            if self.is_revoked:
                raise KeyboardInterrupt from error
            self.has_died = self.has_died or isinstance(error, WorkerError)
            raise
