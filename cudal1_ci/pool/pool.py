"""Run work on several device slots at once.

    with Pool(backend, notice=print) as pool:
        outcomes = pool.map(tasks, work, is_over=is_over, run_status=run_status)

There is a thread for each slot. What work finds goes into the archive by its own hand; the caller's
thread waits, and is where Ctrl-C arrives: then every verifier is revoked (`LeasedVerifier`), and
what work makes of that is its result. A slot that is lost is opened again, and its item is tried
again there or elsewhere (`queue.py`). Slots stay open from one `map` to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.config import RetryLimits
from cudal1_ci.pool.queue import POLL_S, Outcome, WorkQueue
from cudal1_ci.pool.slots import Backend, DeviceSlot, LeasedVerifier, SlotLost
from cudal1_ci.records import Device
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.wording import device_text
from cudal1_ci.verification.protocol import Verifier

T = TypeVar("T")
R = TypeVar("R")

STOP_S = 10.0
"""For a thread to end when its verifier was revoked; one that cannot be ended is left. A thread
that waits for another process's device gives up by itself (processes/device_wait.py)."""


class Pool:
    """Keep slots open inside of a `with`; the first one is open when it is entered."""

    def __init__(
        self,
        backend: Backend,
        *,
        notice: Callable[[str], None],
        is_of_one_kind: bool = False,
        limits: RetryLimits | None = None,
    ) -> None:
        """
        Args:
            notice: Is called with what happens to slots.
            is_of_one_kind: Leave out slots whose device is not of the first one's kind.
        """
        self.backend, self.notice = backend, notice
        self.is_of_one_kind = is_of_one_kind
        self.limits = limits or RetryLimits()
        self._devices: dict[int, Device] = {}
        self._verifiers: dict[int, LeasedVerifier] = {}
        """Of the slots that are open."""
        self._left_out: set[int] = set()

    def __enter__(self) -> Self:
        """Raises: WorkerError, UnsupportedError, ConfigError."""
        message = "there is none"
        for number in range(self.backend.num_slots):
            try:
                slot = self.backend.open(number, lambda: False)
            except SlotLost as error:
                message = str(error)
                continue
            self._first = slot
            self._devices[number] = slot.device
            self._verifiers[number] = LeasedVerifier(slot)
            self.first: Verifier = self._verifiers[number]
            """For what has to be known before anything is mapped."""
            return self
        raise WorkerError(f"no slot could be opened: {message}")

    def __exit__(self, *_: object) -> None:
        for number in list(self._verifiers):
            self._close(number)

    @property
    def devices(self) -> list[Device]:
        """Return one of each kind that was there: the first slot's, then by the slots' numbers."""
        others = [device for _, device in sorted(self._devices.items())]
        return list({device.key: device for device in (self._first.device, *others)}.values())

    def map(
        self,
        items: Sequence[T],
        work: Callable[[T, Verifier], R],
        *,
        is_over: Callable[[], bool],
        run_status: Ending,
        begun_on: Callable[[T], frozenset[str]] | None = None,
        problem_of: Callable[[T], str] | None = None,
        worth: Callable[[T], Any] | None = None,
        is_open: Callable[[T], bool] | None = None,
    ) -> list[Outcome[R]]:
        """Return what comes of each item, in their order.

        Args:
            is_over: Is called before an item is begun.
            run_status: Notes an interrupt.
            begun_on: The kinds of devices (`Device.key`) on which something is known of an item.
            problem_of: The id of its problem, where several items have the same one.
            worth: What is leased first, of those that wait; without it the first one.
            is_open: Whether an item is to be leased again, after work has returned.

        Raises:
            WorkerError: No slot is left, or verifiers die whatever they are given.
            CudaL1Error: What the work raised, or a slot that no try would open.
        """
        numbers = sorted(set(range(self.backend.num_slots)) - self._left_out)
        queue: WorkQueue[T, R] = WorkQueue(
            items,
            numbers,
            self.limits,
            is_over,
            begun_on=begun_on,
            problem_of=problem_of,
            worth=worth,
            is_open=is_open,
        )
        threads = [
            threading.Thread(
                target=self._serve, args=(number, queue, work), name=f"slot {number}", daemon=True
            )
            for number in numbers
        ]
        is_whole = False
        try:
            for thread in threads:
                thread.start()
            queue.wait()
            is_whole = queue.error is None
        except KeyboardInterrupt:
            run_status.was_interrupted = True
        finally:
            queue.stop()
            if not is_whole:
                self._revoke_all(threads)
        if queue.error is not None:
            raise queue.error
        if queue.num_left and not (run_status.was_interrupted or is_over()):
            raise WorkerError(f"no slot is left; the last one that was lost: {queue.last_loss}")
        return queue.outcomes

    def _revoke_all(self, threads: Sequence[threading.Thread]) -> None:
        """End what every slot is at, and wait until no thread works any more."""
        deadline_s = time.monotonic() + STOP_S
        while True:  # again for a slot that was being opened when the others were revoked
            closers = [
                threading.Thread(target=verifier.revoke, daemon=True)
                for verifier in list(self._verifiers.values())
            ]
            for closer in closers:
                closer.start()
            for thread in (*closers, *threads):
                if thread.ident is not None:
                    thread.join(min(POLL_S, max(0.0, deadline_s - time.monotonic())))
            is_busy = any(thread.is_alive() for thread in (*closers, *threads))
            if not is_busy or time.monotonic() > deadline_s:
                return

    def _serve(self, number: int, queue: WorkQueue[T, R], work: Callable[[T, Verifier], R]) -> None:
        """Keep a slot open, as long as there is something to do and it can be had."""
        try:
            while queue.may_open(number) and self._use(number, queue, work):
                pass
        except BaseException as error:  # noqa: BLE001 (raised by `map`, to the caller)
            if not isinstance(error, KeyboardInterrupt):
                queue.fail(error)
        finally:
            queue.leave(number)

    def _use(self, number: int, queue: WorkQueue[T, R], work: Callable[[T, Verifier], R]) -> bool:
        """Work on a slot until it is lost or all is done; return whether to open it again."""
        name, is_kept = f"slot {number}", False
        try:
            verifier = self._opened(number, queue.is_done)
            name = verifier.slot.name
            if not self._is_welcome(number, verifier.slot):
                return False
            queue.join(number, verifier.slot.device.key)
            while (lease := queue.lease(number)) is not None:
                verifier.has_died = False
                result = work(lease.item.value, verifier)
                if verifier.has_died:
                    queue.hold(lease, result)
                    return True
                queue.complete(lease, result)
            is_kept = not queue.is_stopped
        except SlotLost as error:
            if number in self._verifiers or not queue.is_done():
                self.notice(f"lost {name}: {error}")
                queue.lose(number, name, str(error))
            return True
        finally:
            if not is_kept:
                self._close(number)
        return False

    def _opened(self, number: int, is_over: Callable[[], bool]) -> LeasedVerifier:
        """Return the verifier of a slot, which is open already or opened now. Raises: SlotLost."""
        if number not in self._verifiers or self._verifiers[number].is_revoked:
            self._verifiers[number] = LeasedVerifier(self.backend.open(number, is_over))
        return self._verifiers[number]

    def _close(self, number: int) -> None:
        verifier = self._verifiers.pop(number, None)
        if verifier is not None and not verifier.is_revoked:
            verifier.slot.close()

    def _is_welcome(self, number: int, slot: DeviceSlot) -> bool:
        if self.is_of_one_kind and slot.device.key != self._first.device.key:
            self.notice(
                f"{slot.name} is left out: its device is {device_text(slot.device)}, or its "
                f"software another one than that of {self._first.name}, "
                f"{device_text(self._first.device)}"
            )
            self._left_out.add(number)
            return False
        self._devices.setdefault(number, slot.device)
        if slot.remark is not None:
            self.notice(f"{slot.name}: {slot.remark}")
        return True
