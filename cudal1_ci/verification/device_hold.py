"""Hold the device of a verifier for the repetitions of a measurement."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from cudal1_ci.processes.lock import exclusive
from cudal1_ci.records import Device
from cudal1_ci.sandboxed.wire.codec import Asks
from cudal1_ci.sandboxed.wire.verifier import Dismiss, InTurn, Repeat, Reply, StartAhead
from cudal1_ci.verification.conditions import Gpu
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.spread_memory import SpreadMemory

R = TypeVar("R", bound=Reply)

MOST_AHEAD = {"cpu": 1, "cuda": 2}
"""Most repetitions whose processes are started together. On a CPU they would wait for the same
cores; on a GPU more might not be needed."""
DISMISS_S = 60.0


class Ask(Protocol):
    """A function that sends a request to a verifier."""

    def __call__(self, request: Asks[R], timeout_s: float, /) -> R: ...


class AskBeside(Protocol):
    """A function that sends a request which times nothing."""

    def __call__(self, request: InTurn[R], timeout_s: float, /) -> R: ...


@dataclass(frozen=True)
class Seat:
    """The verifier and its device, where repetitions are made."""

    ask: Ask
    """Takes a request and the seconds that it may take."""
    ask_beside: AskBeside
    """Takes one that may overlap with other verifiers, but never with their timing."""
    device: Device
    lock: str
    """Name of the device among all processes of the machine."""
    gpu: Gpu | None = None
    pid: int | None = None
    """Process ID of the verifier. Its descendants are no foreign processes on the GPU."""
    spreads: SpreadMemory = field(default_factory=lambda: SpreadMemory(None))
    """What controls showed before on this device."""


class Hold:
    """A hold on the device for the repetitions of a workload, which starts with the first one.

    Processes for the next repetitions start before that, while other verifiers examine. Starting a
    program that compiles in its first call takes much longer than timing it. The device is also
    released whenever more processes have to start. Where none can be started ahead, it is held for
    all repetitions: several verifiers would take much longer if each waited before every one.
    """

    def __init__(self, seat: Seat, config: TrialConfig, *, goes_on: bool):
        self.seat, self.goes_on = seat, goes_on
        is_fresh, most_ahead = not config.keeps, MOST_AHEAD[seat.device.kind]
        self.num_ready: int | None = 0 if is_fresh and most_ahead > 1 else None
        """Repetitions whose processes wait; None where they cannot be started ahead."""
        self.held = contextlib.ExitStack()
        self.is_held = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self.release(self.goes_on)
        self.held.close()

    def get_ready(self, request: Repeat, timeout_s: float) -> float:
        """Hold the device, with the processes of the next repetition ready where they can be.
        Return the seconds that their start took."""
        took_s = 0.0
        if self.num_ready == 0:
            self.release(goes_on=True)
            ahead = StartAhead(workload=request.workload, clock=request.clock)
            reply = self.seat.ask_beside(ahead, timeout_s)
            self.num_ready, took_s = reply.number or None, reply.took_s
        if not self.is_held:
            self.held.enter_context(exclusive(self.seat.lock))
            self.is_held = True
        if self.num_ready:
            self.num_ready -= 1
        return took_s

    def release(self, goes_on: bool) -> None:
        """Give the device to others, which then have its memory. The candidate's processes end
        unless it `goes_on`."""
        with self.held:
            if self.is_held and MOST_AHEAD[self.seat.device.kind] > 1:
                self.seat.ask(Dismiss(goes_on=goes_on), DISMISS_S)
        self.is_held = False
