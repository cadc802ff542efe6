"""Who has the next turn where, and what became of each.

Every method may be called by any thread. Items are handed out in their order. One whose seat is
lost is the next again, and goes to a seat with which it was not lost, if there is one; one that was
begun on a kind of device goes to a seat of that kind, if there is one or one may come.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.board import POLL_S, Limits

KIND_S = 120.0
"""How long an item waits for a seat of the kind that it was begun on, while seats are opened."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """Of one item; with neither it was not reached."""

    result: R | None = None
    reason: str | None = None
    """Why there is none: judges died with it."""


@dataclass
class Turn(Generic[T, R]):
    """An item, until it has its outcome."""

    number: int
    item: T
    begun_on: frozenset[str]
    """Kinds of devices."""
    died_on: Counter[int] = field(default_factory=Counter)
    """Seats, as often as they were lost with it."""
    since_s: float = field(default_factory=time.monotonic)
    """When it began to wait."""
    doubted: R | None = None
    """What came of it on a seat whose judge died meanwhile: it counts if the seat is well."""


class TurnQueue(Generic[T, R]):
    """One for each run. Seats are known by their numbers."""

    def __init__(
        self,
        items: Sequence[T],
        seats: Sequence[int],
        limits: Limits,
        is_over: Callable[[], bool],
        begun_on: Callable[[T], frozenset[str]],
    ) -> None:
        self.limits = limits
        self.error: BaseException | None = None
        self.last_loss = "none could be opened"
        self.outcomes: list[Outcome[R]] = [Outcome() for _ in items]
        self.num_losses: Counter[int] = Counter()
        """Of each seat, since something came of a turn there; what was the item's fault is none."""
        self._is_over, self._begun_on = is_over, begun_on
        self._changed = threading.Condition()
        self._is_stopped = False
        self._waiting: list[Turn[T, R]] = [
            Turn(number, item, begun_on(item)) for number, item in enumerate(items)
        ]
        self._running: dict[int, Turn[T, R]] = {}
        self._kinds: dict[int, str] = {}
        """Of the seats that are there."""
        self._coming = set(seats)
        """Seats that are being opened."""
        self._num_given_up = 0
        """In a row."""

    # --- for whoever waits for the end ---

    def wait(self) -> None:
        """Until every seat has left, or something failed."""
        with self._changed:
            while (self._coming or self._kinds) and self.error is None:
                self._changed.wait(POLL_S)

    def stop(self) -> None:
        """Nothing more is handed out."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    @property
    def num_left(self) -> int:
        return len(self._waiting) + len(self._running)

    # --- for seats ---

    def may_try(self, seat: int) -> bool:
        """Whether a seat is to be opened."""
        with self._changed:
            return self.num_losses[seat] < self.limits.max_losses and not self.is_done()

    def join(self, seat: int, kind: str) -> None:
        """It is there, or there again: then what came of its last turn counts."""
        with self._changed:
            self._coming.discard(seat)
            self._kinds[seat] = kind
            self._settle(seat)
            self._changed.notify_all()

    def take(self, seat: int) -> Turn[T, R] | None:
        """The next turn of a seat; waits where others may yet leave it something. None when all is
        done, or over."""
        with self._changed:
            while not self.is_done():
                for turn in self._waiting:
                    if seat in self._fit(turn):
                        self._waiting.remove(turn)
                        self._running[seat] = turn
                        return turn
                self._changed.wait(POLL_S)
        return None

    def finished(self, seat: int, result: R) -> None:
        """What came of a turn."""
        with self._changed:
            self._end(self._running.pop(seat), Outcome(result=result))
            self.num_losses[seat] = 0

    def doubted(self, seat: int, result: R) -> None:
        """A judge died in a turn that ended. The seat is opened again, which says whether it was
        the seat; if so the turn is another one's."""
        with self._changed:
            self._running[seat].doubted = result
            self._kinds.pop(seat, None)
            self._coming.add(seat)

    def lost(self, seat: int, name: str, message: str) -> None:
        """A seat is gone, or was never there."""
        with self._changed:
            self.last_loss = f"{name}: {message}"
            self.num_losses[seat] += 1
            self._kinds.pop(seat, None)
            self._coming.add(seat)
            turn = self._running.pop(seat, None)
            if turn is not None:
                self._again(turn, seat, message)
            self._changed.notify_all()

    def left(self, seat: int) -> None:
        """A seat will not come back."""
        with self._changed:
            self._kinds.pop(seat, None)
            self._coming.discard(seat)
            self._settle(seat)
            turn = self._running.pop(seat, None)
            if turn is not None:
                insort(self._waiting, turn, key=lambda one: one.number)
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """Something that no other try would mend; the first one counts."""
        with self._changed:
            self.error = self.error or error
            self._is_stopped = True
            self._changed.notify_all()

    def is_done(self) -> bool:
        """Whether a seat may go. Whether it is over is asked only where something is left out."""
        if self._is_stopped or not self.num_left:
            return True
        return bool(self._waiting) and self._is_over()

    # --- with the lock held ---

    def _fit(self, turn: Turn[T, R]) -> set[int]:
        """The seats that may take it."""
        there = set(self._kinds)
        alike = {seat for seat in there if self._kinds[seat] in turn.begun_on}
        is_patient = time.monotonic() - turn.since_s < KIND_S
        if turn.begun_on and not alike and self._coming and is_patient:
            return set()
        fit = alike or there
        return fit - set(turn.died_on) or fit

    def _settle(self, seat: int) -> None:
        turn = self._running.get(seat)
        if turn is not None and turn.doubted is not None:
            self._end(self._running.pop(seat), Outcome(result=turn.doubted))
            self.num_losses[seat] = 0

    def _again(self, turn: Turn[T, R], seat: int, message: str) -> None:
        """Another try of what was lost with a seat, or the end of its tries."""
        turn.died_on[seat] += 1
        num_deaths = turn.died_on.total()
        if num_deaths < self.limits.num_tries:
            turn.begun_on, turn.doubted = self._begun_on(turn.item), None
            turn.since_s = time.monotonic()
            insort(self._waiting, turn, key=lambda one: one.number)
            return
        for one, number in turn.died_on.items():  # it was the item
            self.num_losses[one] = max(0, self.num_losses[one] - number)
        if turn.doubted is not None:
            self._end(turn, Outcome(result=turn.doubted))
            return
        died = f"judges died with it {num_deaths} times: {message}"
        num_given_up = self._num_given_up + 1
        self._end(turn, Outcome(reason=died))
        self._num_given_up = num_given_up
        if num_given_up >= self.limits.max_given_up:
            self.failed(WorkerError(f"with {num_given_up} in a row {died}"))

    def _end(self, turn: Turn[T, R], outcome: Outcome[R]) -> None:
        self.outcomes[turn.number] = outcome
        self._num_given_up = 0
        self._changed.notify_all()
