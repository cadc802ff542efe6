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
from dataclasses import dataclass

POLL_S = 0.25
"""Seconds between two checks whether the time is over. No wait ends sooner. A verifier reports
every time that it takes the device, so a wait of no length must cost nothing."""

NOTICED_S, BESIDE_OTHERS_S = 10.0, 60.0
"""Waits of this length together are reported; the other one where a run's own verifiers wait for
each other."""
WAITING = "waiting for the device: another process of this machine measures on it"

IsOver = Callable[[], bool]
Say = Callable[[str], None]


@dataclass
class Patience:
    """Hold how long a thread waits, and how long it has waited."""

    is_over: IsOver
    say: Say
    noticed_s: float
    waited_s: float = 0.0
    is_noticed: bool = False


_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


class GaveUp(Exception):
    """The run was over before the device was free."""


@contextmanager
def patient_until(
    is_over: IsOver, say: Say = lambda _: None, noticed_s: float = NOTICED_S
) -> Iterator[None]:
    """Let this thread give up a wait once `is_over()` returns True. It is called during the
    wait. Once its waits took `noticed_s` seconds together, that is reported with `say`."""
    token = _patience.set(Patience(is_over, say, noticed_s))
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
    patience = _patience.get()
    while True:
        started_s = time.monotonic()
        if is_there(POLL_S):
            return
        if patience is None:
            continue
        if patience.is_over():
            raise GaveUp("the device was waited for until the run was over")
        patience.waited_s += time.monotonic() - started_s
        if not patience.is_noticed and patience.waited_s > patience.noticed_s:
            patience.is_noticed = True
            patience.say(WAITING)
