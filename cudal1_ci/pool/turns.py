"""Several judges for a run whose parts need one judge each from their beginning to their end.

    with Row(seats, told=print) as row:
        outcomes = row.each(tasks, lambda task, judge: ..., is_over=..., ending=...)

`pool.py` spreads candidates that are all known; here what is tried next depends on what came
before it, as in rounds of proposals or a conversation with a model, so that a seat has a whole
task. There is a thread for each seat. What they find goes into the archive by their own hands; the
caller's thread waits, and is where Ctrl-C arrives: then every judge is taken back (`lent.py`), and
what turns make of that is their result.

A seat that is lost is opened again; its turn is done again by another one or by the new one, up to
`Limits.num_tries` times. Where a judge died in a turn and the seat was kept, the seat is opened
anew, as a device that is broken would spoil one task after the other; what came of the turn counts
if that succeeds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.pool.board import POLL_S, Limits
from cudal1_ci.pool.lent import LentJudge
from cudal1_ci.pool.seat import JudgeSeat, JudgeSeats, SeatLost
from cudal1_ci.pool.turn_queue import Outcome, TurnQueue
from cudal1_ci.records import Device
from cudal1_ci.records.run_status import Ending
from cudal1_ci.render.wording import device_text
from cudal1_ci.verification.protocol import Judge

T = TypeVar("T")
R = TypeVar("R")

STOP_S = 10.0
"""For a thread to end when its judge was taken back; one that cannot be ended is left. Who waits
for a device that another process has gives up (processes/device_wait.py)."""


class Row:
    """Context manager: the first seat is there when it is entered. Has one run."""

    def __init__(
        self,
        seats: JudgeSeats,
        *,
        told: Callable[[str], None],
        is_of_one_kind: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """`told` is what happens to seats. `is_of_one_kind` leaves out those whose device is not
        like the first one's."""
        self.seats, self.told = seats, told
        self.is_of_one_kind = is_of_one_kind
        self.limits = limits or Limits()
        self._devices: dict[int, Device] = {}
        self._lead: tuple[int, JudgeSeat] | None = None

    def __enter__(self) -> Self:
        """Raises: WorkerError, UnsupportedError, ConfigError."""
        message = "there is none"
        for number in range(self.seats.num_seats):
            try:
                seat = self.seats.open(number, lambda: False)
            except SeatLost as error:
                message = str(error)
                continue
            self._lead = number, seat
            self.first: Judge = LentJudge(seat)
            """For what has to be known before the first turn."""
            self._devices[number] = seat.device
            return self
        raise WorkerError(f"no seat could be opened: {message}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lead is not None:
            self._lead[1].close()
            self._lead = None

    @property
    def devices(self) -> list[Device]:
        """One of each kind that was there: the first seat's, then by the seats' numbers."""
        first = self.first.device()
        others = [device for _, device in sorted(self._devices.items())]
        return list({device.key: device for device in (first, *others)}.values())

    def each(
        self,
        items: Sequence[T],
        work: Callable[[T, Judge], R],
        *,
        is_over: Callable[[], bool],
        ending: Ending,
        begun_on: Callable[[T], frozenset[str]] = lambda _: frozenset(),
    ) -> list[Outcome[R]]:
        """What comes of each item, in their order.

        `is_over` is asked before an item is begun; `ending` is told of an interrupt; `begun_on`
        says on which kinds of devices (`Device.key`) something is known of an item.

        Raises:
            WorkerError: No seat is left, or judges die whatever they are given.
            CudaL1Error: What the work raised, or a seat that no try would open.
        """
        assert self._lead is not None, "a row has one run"
        numbers = range(self.seats.num_seats)
        queue: TurnQueue[T, R] = TurnQueue(items, numbers, self.limits, is_over, begun_on)
        crew = Crew(self, queue, work, self._lead)
        self._lead = None
        try:
            crew.start()
            queue.wait()
        except KeyboardInterrupt:
            ending.was_interrupted = True
        finally:
            crew.stop()
        if queue.error is not None:
            raise queue.error
        if queue.num_left and not (ending.was_interrupted or is_over()):
            raise WorkerError(f"no seat is left; the last one that was lost: {queue.last_loss}")
        return queue.outcomes


class Crew(Generic[T, R]):
    """The threads of one run, and the judges that they have."""

    def __init__(
        self,
        row: Row,
        queue: TurnQueue[T, R],
        work: Callable[[T, Judge], R],
        lead: tuple[int, JudgeSeat],
    ) -> None:
        self.row, self.queue, self.work = row, queue, work
        self._open: dict[int, JudgeSeat] = dict([lead])
        """Seats that were opened before their thread began."""
        self._first = lead[1]
        self._judges: dict[int, LentJudge] = {lead[0]: LentJudge(lead[1])}
        self._threads = [
            threading.Thread(target=self._hold, args=(number,), name=f"seat {number}", daemon=True)
            for number in range(row.seats.num_seats)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take every judge back, and wait until nobody works any more."""
        self.queue.stop()
        deadline_s = time.monotonic() + STOP_S
        while True:  # again for a judge that was being opened when the others were taken back
            closers = [
                threading.Thread(target=judge.take_back, daemon=True)
                for judge in list(self._judges.values())
            ]
            for closer in closers:
                closer.start()
            for thread in (*closers, *self._threads):
                if thread.ident is not None:
                    thread.join(min(POLL_S, max(0.0, deadline_s - time.monotonic())))
            is_busy = any(thread.is_alive() for thread in (*closers, *self._threads))
            if not is_busy or time.monotonic() > deadline_s:
                return

    def _hold(self, number: int) -> None:
        """Have a seat, as long as there is something to do and it can be had."""
        try:
            while self.queue.may_try(number) and self._sit(number):
                pass
        except BaseException as error:  # noqa: BLE001 (raised by `each`, to the caller)
            if not isinstance(error, KeyboardInterrupt):
                self.queue.failed(error)
        finally:
            self.queue.left(number)

    def _sit(self, number: int) -> bool:
        """Open a seat and have turns there until it is lost or all is done; whether to go on."""
        queue, name = self.queue, f"seat {number}"
        try:
            seat = self._open.pop(number, None) or self.row.seats.open(number, queue.is_done)
        except SeatLost as error:
            if not queue.is_done():
                self._lost(number, name, error)
            return True
        try:
            if not self._is_welcome(number, seat):
                return False
            judge = self._judges[number] = LentJudge(seat)
            queue.join(number, seat.device.key)
            while (turn := queue.take(number)) is not None:
                judge.has_died = False
                result = self.work(turn.item, judge)
                if judge.has_died:
                    queue.doubted(number, result)
                    return True
                queue.finished(number, result)
        except SeatLost as error:
            self._lost(number, seat.name, error)
            return True
        finally:
            seat.close()
        return False

    def _is_welcome(self, number: int, seat: JudgeSeat) -> bool:
        row, first = self.row, self._first
        if row.is_of_one_kind and seat.device.key != first.device.key:
            row.told(
                f"{seat.name} is left out: its device is {device_text(seat.device)}, or its "
                f"software another one than that of {first.name}, {device_text(first.device)}"
            )
            return False
        row._devices.setdefault(number, seat.device)
        if seat.remark is not None:
            row.told(f"{seat.name}: {seat.remark}")
        return True

    def _lost(self, number: int, name: str, error: SeatLost) -> None:
        self.row.told(f"lost {name}: {error}")
        self.queue.lost(number, name, str(error))
