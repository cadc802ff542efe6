"""Lease work items to slots, and keep what becomes of each.

    queue = WorkQueue(items, range(2), RetryLimits(), is_over)
    queue.join(0, kind)
    while (lease := queue.lease(0)) is not None:
        queue.complete(lease, work(lease.item.value))

Items are leased in their order, with two affinities. An item that was begun on a kind of device
goes to a slot of that kind, if there is one or one may come, as times of different kinds are not
compared. An item of a problem goes to the slot whose verifier knows that problem's reference.

A lost slot returns its lease: the item is the next again, and goes to a slot with which it was not
lost, if there is one. After `RetryLimits.max_tries` it is given up, with the reason. Where a
verifier died and the slot is still there, the lease is held until the slot was opened again: a
device that is broken would spoil one item after the other. The result counts if that succeeds.

Knows neither threads nor devices: any thread may call any method, and a slot is a number.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.config import RetryLimits

POLL_S = 0.5
"""Between looks at whether it is over, where nothing else happens."""
KIND_S = 120.0
"""How long an item waits for a slot of the kind that it was begun on, while slots are opened."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """Hold the outcome of one item; an item with neither a result nor an error was not reached."""

    result: R | None = None
    reason: str | None = None
    """Why there is no result: slots were lost with it."""


@dataclass
class WorkItem(Generic[T]):
    """Hold one thing to do, until it has its outcome."""

    number: int
    value: T
    problem_id: str | None
    begun_on: frozenset[str]
    """Kinds of devices."""
    waits_since_s: float
    losses: Counter[int] = field(default_factory=Counter)
    """How often each slot was lost with it."""


@dataclass
class Lease(Generic[T, R]):
    """An item that a slot has."""

    slot: int
    item: WorkItem[T]
    held: R | None = None
    """The result of a verifier that died meanwhile: it counts if the slot is well."""


class WorkQueue(Generic[T, R]):
    """The items of one run."""

    def __init__(
        self,
        items: Sequence[T],
        slots: Sequence[int],
        limits: RetryLimits,
        is_over: Callable[[], bool],
        *,
        begun_on: Callable[[T], frozenset[str]] | None = None,
        problem_of: Callable[[T], str] | None = None,
        worth: Callable[[T], Any] | None = None,
        is_open: Callable[[T], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.error: BaseException | None = None
        self.last_loss = "none could be opened"
        self.outcomes: list[Outcome[R]] = [Outcome() for _ in items]
        self.num_losses: Counter[int] = Counter()
        """Of each slot, since an item was completed there, without those an item is to blame
        for."""
        self._is_over, self._begun_on, self._clock = is_over, begun_on, clock
        self._worth, self._is_open = worth, is_open
        self._changed = threading.Condition()
        self.is_stopped = False
        self._waiting = [
            WorkItem(
                number, one, problem_of(one) if problem_of else None, self._kinds_of(one), clock()
            )
            for number, one in enumerate(items)
        ]
        self._leases: dict[int, Lease[T, R]] = {}
        self._kinds: dict[int, str] = {}
        """The kind of each slot that is there."""
        self._known: dict[int, str | None] = {}
        """The problem that each slot's verifier has had last."""
        self._coming = set(slots)
        """Slots that are being opened."""
        self._num_given_up = 0
        """In a row."""

    # --- for the caller, who waits for the end ---

    def wait(self) -> None:
        """Wait until every slot has left, or something failed."""
        with self._changed:
            while (self._coming or self._kinds) and self.error is None:
                self._changed.wait(POLL_S)

    def stop(self) -> None:
        """Lease nothing more."""
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()

    @property
    def num_left(self) -> int:
        return len(self._waiting) + len(self._leases)

    # --- for slots ---

    def may_open(self, slot: int) -> bool:
        """Say whether a slot is to be opened."""
        with self._changed:
            return self.num_losses[slot] < self.limits.max_losses and not self.is_done()

    def join(self, slot: int, kind: str) -> None:
        """Note that a slot is there, or there again: then the result that it held counts."""
        with self._changed:
            self._coming.discard(slot)
            self._kinds[slot] = kind
            self._settle(slot)
            self._changed.notify_all()

    def lease(self, slot: int) -> Lease[T, R] | None:
        """Return the next item of a slot; wait where others may yet return one. None when all is
        done, or over."""
        with self._changed:
            while not self.is_done():
                lease = self.lease_now(slot)
                if lease is not None:
                    return lease
                self._changed.wait(POLL_S)
        return None

    def lease_now(self, slot: int) -> Lease[T, R] | None:
        """Return the next item of a slot; None where there is none for it now."""
        with self._changed:
            item = self._next(slot)
            if item is None:
                return None
            self._waiting.remove(item)
            self._known[slot] = item.problem_id
            self._leases[slot] = Lease(slot, item)
            return self._leases[slot]

    def complete(self, lease: Lease[T, R], result: R) -> None:
        """Keep the result of a lease. An item that is open waits for its next turn."""
        with self._changed:
            del self._leases[lease.slot]
            if self._is_open is not None and self._is_open(lease.item.value):
                self._wait_again(lease.item)
                self._changed.notify_all()
            else:
                self._end(lease.item, Outcome(result=result))
            self.num_losses[lease.slot] = 0

    def hold(self, lease: Lease[T, R], result: R) -> None:
        """Keep a result in doubt, as the verifier died meanwhile. The slot is to be opened again,
        which says whether it was the slot; if so the item is leased to another one."""
        with self._changed:
            lease.held = result
            self._close(lease.slot)
            self._coming.add(lease.slot)

    def lose(self, slot: int, name: str, message: str) -> None:
        """Note that a slot is gone, or never was there, and return its lease."""
        with self._changed:
            self.last_loss = f"{name}: {message}"
            self.num_losses[slot] += 1
            self._close(slot)
            self._coming.add(slot)
            lease = self._leases.pop(slot, None)
            if lease is not None:
                self._retry(lease, message)
            self._changed.notify_all()

    def leave(self, slot: int) -> None:
        """Note that a slot will not come back."""
        with self._changed:
            self._close(slot)
            self._coming.discard(slot)
            self._settle(slot)
            lease = self._leases.pop(slot, None)
            if lease is not None:
                self._wait_again(lease.item)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the run for something that no other try would help; the first error counts."""
        with self._changed:
            self.error = self.error or error
            self.is_stopped = True
            self._changed.notify_all()

    def is_done(self) -> bool:
        """Say whether a slot may go. Whether it is over is asked only where something is left
        out."""
        if self.is_stopped or not self.num_left:
            return True
        return bool(self._waiting) and self._is_over()

    # --- with the lock held ---

    def _next(self, slot: int) -> WorkItem[T] | None:
        """Choose among what the slot may have: its own problem first, then what no other slot
        knows, then the rest; where items have a worth, the one that is worth most."""
        if self._worth is not None:
            fitting = [item for item in self._waiting if slot in self._fitting(item)]
            worth = self._worth
            return max(fitting, key=lambda item: worth(item.value), default=None)
        others = {problem for one, problem in self._known.items() if one != slot}
        second: WorkItem[T] | None = None
        third: WorkItem[T] | None = None
        for item in self._waiting:
            if slot not in self._fitting(item):
                continue
            if item.problem_id is None or item.problem_id == self._known.get(slot):
                return item
            if item.problem_id not in others:
                second = second or item
            else:
                third = third or item
        return second or third

    def _fitting(self, item: WorkItem[T]) -> set[int]:
        """Return the slots that may have it."""
        there = set(self._kinds)
        same = {slot for slot in there if self._kinds[slot] in item.begun_on}
        is_patient = self._clock() - item.waits_since_s < KIND_S
        if item.begun_on and not same and self._coming and is_patient:
            return set()
        fitting = same or there
        return fitting - set(item.losses) or fitting

    def _kinds_of(self, value: T) -> frozenset[str]:
        return self._begun_on(value) if self._begun_on else frozenset()

    def _close(self, slot: int) -> None:
        self._kinds.pop(slot, None)
        self._known.pop(slot, None)

    def _settle(self, slot: int) -> None:
        lease = self._leases.get(slot)
        if lease is not None and lease.held is not None:
            self.complete(lease, lease.held)

    def _retry(self, lease: Lease[T, R], message: str) -> None:
        """Let the item of a lost slot be tried again, or give it up."""
        item = lease.item
        item.losses[lease.slot] += 1
        num_losses = item.losses.total()
        if num_losses < self.limits.max_tries:
            item.begun_on = self._kinds_of(item.value)
            self._wait_again(item)
            return
        for slot, number in item.losses.items():  # it was the item
            self.num_losses[slot] = max(0, self.num_losses[slot] - number)
        if lease.held is not None:
            self._end(item, Outcome(result=lease.held))
            return
        reason = f"its verifier died {num_losses} times: {message}"
        num_given_up = self._num_given_up + 1
        self._end(item, Outcome(reason=reason))
        self._num_given_up = num_given_up
        if num_given_up >= self.limits.max_given_up:
            self.fail(WorkerError(f"with {num_given_up} in a row {reason}"))

    def _wait_again(self, item: WorkItem[T]) -> None:
        item.waits_since_s = self._clock()
        insort(self._waiting, item, key=lambda one: one.number)

    def _end(self, item: WorkItem[T], outcome: Outcome[R]) -> None:
        self.outcomes[item.number] = outcome
        self._num_given_up = 0
        self._changed.notify_all()
