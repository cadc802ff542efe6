"""A judge with a device for itself, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from cudal1_ci.records import Candidate, Device, Evaluation, Problem, Record
from cudal1_ci.verification.protocol import Judge


class SeatLost(Exception):
    """The process or the machine of a seat is gone, with what was under way there."""


class Broken(Record, frozen=True, kw_only=True):
    """A candidate with which the judge itself died; the seat has a new one."""

    candidate_id: str
    message: str


class Seat(Protocol):
    """Used by one thread."""

    @property
    def name(self) -> str:
        """The same for the same device of the same machine, in each run."""
        ...

    @property
    def device(self) -> Device:
        """What is measured on."""
        ...

    @property
    def remark(self) -> str | None:
        """What is to be known of times that are measured here."""
        ...

    def judge(
        self, problem: Problem, candidates: Sequence[Candidate]
    ) -> Iterator[Evaluation | Broken]:
        """Each candidate once, in any order, as it is judged. May be left before its end.

        Raises:
            SeatLost: Candidates of which nothing was said yet have no verdict.
        """
        ...

    def close(self) -> None:
        """End the judge and free its device, whatever state it is in."""
        ...


class Seats(Protocol):
    """Where seats are; what of them is gone can be opened again."""

    @property
    def num_seats(self) -> int:
        """At the most."""
        ...

    def open(self, number: int, is_over: Callable[[], bool]) -> Seat:
        """The seat of that number, 0 <= number < num_seats; waits for its device until `is_over`.

        Raises:
            SeatLost: It could not be started, or was no more wanted; another try may succeed.
            CudaL1Error: No try will.
        """
        ...


class JudgeSeat(Protocol):
    """A seat whose judge is lent for a whole turn, such as all that is tried on one task."""

    @property
    def name(self) -> str: ...
    @property
    def device(self) -> Device: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def session(self) -> Judge:
        """Raises SeatLost where its process or machine is gone, WorkerError where the judge died
        and the next question has a new one."""
        ...

    def close(self) -> None: ...


class JudgeSeats(Protocol):
    """Where such seats are; see `Seats`."""

    @property
    def num_seats(self) -> int: ...
    def open(self, number: int, is_over: Callable[[], bool]) -> JudgeSeat: ...
