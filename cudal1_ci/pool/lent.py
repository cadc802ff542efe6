"""The judge of a seat, lent to whoever has a turn there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.seat import JudgeSeat
from cudal1_ci.records import Candidate, Demand, Device, Evaluation, Problem, Verdict

T = TypeVar("T")


class LentJudge:
    """A `Judge`. Once it is taken back, what is asked of it raises KeyboardInterrupt, in whichever
    thread: what a turn does when Ctrl-C is pressed is right then too."""

    def __init__(self, seat: JudgeSeat):
        self.seat = seat
        self.has_died = False
        """Whether the judge died in this turn."""
        self._is_taken_back = threading.Event()

    def take_back(self) -> None:
        """End what it is at. From any thread."""
        self._is_taken_back.set()
        self.seat.close()

    def device(self) -> Device:
        return self.seat.device

    def check(self, problem: Problem) -> Verdict:
        return self._asked(lambda: self.seat.session.check(problem))

    def build_ahead(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self._asked(lambda: self.seat.session.build_ahead(problem, candidates))

    def in_turn(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> Iterable[Candidate]:
        several = iter(self.seat.session.in_turn(candidates, is_over))
        while (candidate := self._asked(lambda: next(several, None))) is not None:
            yield candidate

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        return self._asked(lambda: self.seat.session.evaluate(problem, candidate))

    def profile(self, workload: str, *, is_candidate: bool) -> list[dict[str, Any]] | str:
        return self._asked(lambda: self.seat.session.profile(workload, is_candidate=is_candidate))

    def demand(self, workload: str) -> Demand | str:
        return self._asked(lambda: self.seat.session.demand(workload))

    def _asked(self, ask: Callable[[], T]) -> T:
        if self._is_taken_back.is_set():
            raise KeyboardInterrupt
        try:
            return ask()
        except Exception as error:
            if self._is_taken_back.is_set():
                raise KeyboardInterrupt from error
            self.has_died = self.has_died or isinstance(error, WorkerError)
            raise
