"""Limit how long a thread waits for a device that another process holds.

    with patient_until(bench.is_over):
        session.evaluate(problem, candidate)     # GaveUp, where it waits and the run is over

Only the waiting ends early, whether this process or a verifier waits for the lock. A candidate that
has the device is verified to the end. The limit holds for the calling thread alone. Builds ahead,
and verifiers on another machine, wait as long as they must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

POLL_S = 0.25
"""Seconds between two checks whether the time is over. No wait ends sooner. A verifier reports
every time that it takes the device, so a wait of no length must cost nothing."""

_is_over: ContextVar[Callable[[], bool] | None] = ContextVar("is_over", default=None)


class GaveUp(Exception):
    """The run was over before the device was free."""


@contextmanager
def patient_until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Let this thread give up a wait once `is_over()` returns True. It is called during the
    wait."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


def is_patient_for_ever() -> bool:
    """Return whether nothing ends a wait of this thread."""
    return _is_over.get() is None


def until(is_there: Callable[[float], bool]) -> None:
    """Wait until the given check returns True. Its argument is the seconds that it may take.

    Raises:
        GaveUp: It returned False, and the time is over.
    """
    is_over = _is_over.get()
    while not is_there(POLL_S):
        if is_over is not None and is_over():
            raise GaveUp("the device was waited for until the run was over")
