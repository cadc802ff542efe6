"""Until when a thread waits for a device that somebody else has.

    with patient_until(bench.is_over):
        session.evaluate(problem, candidate)     # GaveUp, where it waits and the run is over

Cuts nothing but the waiting, whether this process waits for the lock or a judge does and says so:
what has the device is judged to its end. Of the thread that says it alone: builds ahead of their
turn, and judges of another machine, wait as long as they must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

POLL_S = 0.25
"""Between two looks whether it is over. Nobody gives up sooner, so that a wait that is none, as a
judge tells of each time that it takes the device, costs nothing."""

_is_over: ContextVar[Callable[[], bool] | None] = ContextVar("is_over", default=None)


class GaveUp(Exception):
    """The device was waited for until the run was over."""


@contextmanager
def patient_until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Within it this thread gives up a wait once it `is_over`, which is asked while it waits."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


def is_patient_for_ever() -> bool:
    """Whether nothing ends a wait of this thread."""
    return _is_over.get() is None


def until(is_there: Callable[[float], bool]) -> None:
    """Wait until it is there; it is given the seconds that it may take to find out.

    Raises:
        GaveUp: It was not, and it is over.
    """
    is_over = _is_over.get()
    while not is_there(POLL_S):
        if is_over is not None and is_over():
            raise GaveUp("the device was waited for until the run was over")
