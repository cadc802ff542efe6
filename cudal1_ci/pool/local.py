"""Seats of this machine: a Session in a thread of this process, for each of some devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cudal1_ci.errors import ConfigError, UnsupportedError, WorkerError
from cudal1_ci.pool.seat import Broken, SeatLost
from cudal1_ci.pool.sessions import SessionConfig, judged_by
from cudal1_ci.records import Candidate, Evaluation, Problem
from cudal1_ci.verification import Session


class LocalSeats:
    """`devices` as `--device` names them: `cuda:0`, `cuda:1`. One that is named twice has two
    seats, which share its memory. They load and examine beside each other, and time in turns:
    for candidates that compile when they are first called."""

    def __init__(self, config: SessionConfig, devices: Sequence[str] = ("auto",)):
        if not devices:
            raise ConfigError("devices: expected one or more, such as cuda:0, got none")
        self.config = config
        self.devices = tuple(devices)

    @property
    def num_seats(self) -> int:
        return len(self.devices)

    def open(self, number: int, is_over: Callable[[], bool]) -> LocalSeat:
        """A new judge on that device. Raises: SeatLost, UnsupportedError."""
        del is_over  # a start has its own limit
        device = self.devices[number]
        return LocalSeat(f"{device} #{number}", self.config, device, self.devices.count(device))


class LocalSeat:
    """A Session."""

    remark = None

    def __init__(self, name: str, config: SessionConfig, device: str, num_sharing: int = 1):
        self.name = name
        self.session: Session = config.session(device, num_sharing)
        self.is_closed = False
        try:
            self.device = self.session.device()
        except UnsupportedError:
            self.close()
            raise
        except WorkerError as error:
            self.close()
            raise SeatLost(str(error)) from error

    def judge(
        self, problem: Problem, candidates: Sequence[Candidate]
    ) -> Iterator[Evaluation | Broken]:
        """Raises: SeatLost when it was closed meanwhile."""
        for found in judged_by(self.session, problem, candidates):
            if self.is_closed:
                raise SeatLost(f"{self.name} was closed")
            yield found

    def close(self) -> None:
        """End the judge; whoever waits for its answer gets a WorkerError."""
        self.is_closed = True
        self.session.__exit__(None, None, None)
