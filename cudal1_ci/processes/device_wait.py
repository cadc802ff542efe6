"""Limit how long a thread waits for a device that another process holds.

    with patient_until(bench.is_over):
        session.evaluate(problem, candidate)     # GaveUp, where it waits and the run is over

Only the waiting ends early, whether this process or a verifier waits for the lock. A candidate that
has the device is verified to the end. The limit holds for the calling thread alone. Builds ahead,
and verifiers on another machine, wait as long as they must.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

POLL_S = 0.25
"""Seconds between two checks whether the time is over. No wait ends sooner. A verifier reports
every time that it takes the device, so a wait of no length must cost nothing."""

NOTICED_S, BESIDE_OTHERS_S = 10.0, 60.0
"""A wait of this length is reported; the other one where a run's own verifiers wait for each
other."""
WAITING = "waiting for the device: another process of this machine measures on it"

IsOver = Callable[[], bool]
Say = Callable[[str], None]
_patience: ContextVar[tuple[IsOver, Say, float] | None] = ContextVar("patience", default=None)


class GaveUp(Exception):
    """The run was over before the device was free."""


@contextmanager
def patient_until(
    is_over: IsOver, say: Say = lambda _: None, noticed_s: float = NOTICED_S
) -> Iterator[None]:
    """Let this thread give up a wait once `is_over()` returns True. It is called during the
    wait. One of `noticed_s` seconds is reported with `say`."""
    token = _patience.set((is_over, say, noticed_s))
    try:
        yield
    finally:
        _patience.reset(token)


def is_patient_for_ever() -> bool:
    """Return whether nothing ends a wait of this thread."""
    return _patience.get() is None


def until(is_there: Callable[[float], bool]) -> None:
    """Wait until the given check returns True. Its argument is the seconds that it may take.

    Raises:
        GaveUp: It returned False, and the time is over.
    """
    patience, started_s, is_noticed = _patience.get(), time.monotonic(), False
    while not is_there(POLL_S):
        if patience is None:
            continue
        is_over, say, noticed_s = patience
        if is_over():
            raise GaveUp("the device was waited for until the run was over")
        if not is_noticed and time.monotonic() > started_s + noticed_s:
            is_noticed = True
            say(WAITING)
