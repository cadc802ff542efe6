"""End what takes too long, and say what an exception of a script means."""

from __future__ import annotations

import contextlib
import errno
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from ..wire.harvest import Outcome
from . import needs

MAX_REASON_CHARS = 300
STUBBORN_S = 2.0
"""An alarm that was swallowed rings again after this time."""
REFUSED = (errno.EACCES, errno.EROFS)
WHAT_A_SCRIPT_MAY = (
    "A script can read the checkout and its packages, and write to a folder of its own"
)
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "Cannot allocate memory")


class TimeIsUpError(KeyboardInterrupt):
    """The time of a cell is over. No `except Exception` catches it, and pytest ends at it."""


@contextlib.contextmanager
def limited(limit_s: float, most_s: float = 0.0) -> Iterator[None]:
    """Raise TimeIsUpError in what computes longer, or runs for `most_s`: a busy machine gives a
    process a part of its time."""
    began_s, computed_s = time.monotonic(), time.process_time()

    def ring(*_: object) -> None:
        is_waiting = time.process_time() - computed_s < limit_s
        if not is_waiting or time.monotonic() - began_s > most_s - STUBBORN_S:
            raise TimeIsUpError

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(limit_s, 0.01), STUBBORN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def failure(error: BaseException) -> tuple[Outcome, str]:
    """Return what an exception means, and its text with the line that raised it."""
    if isinstance(error, TimeIsUpError):
        return "out_of_time", "its time was over"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_REASON_CHARS]
    if isinstance(error, MemoryError) or any(one in text for one in OUT_OF_MEMORY):
        return "out_of_memory", text
    if isinstance(error, needs.NeedsError):
        return "needs", str(error)
    if isinstance(error, ModuleNotFoundError):
        return "needs", f"needs the package `{error.name}`"
    if isinstance(error, SystemExit):
        return ("ran", "") if not error.code else ("needs", "it ended: it may need arguments")
    if isinstance(error, FileNotFoundError):
        name = str(error.filename or error)
        _, is_of_hub, rest = name.partition(needs.NOT_DOWNLOADED)
        return "needs", f"needs a download: {rest}" if is_of_hub else f"needs a file: {name}"
    if isinstance(error, OSError) and error.errno in REFUSED and error.filename:
        return "failed", f"`{error.filename}`: {error.strerror}. {WHAT_A_SCRIPT_MAY}"
    lacks = needs.missing(text)
    if lacks:
        return "needs", f"{lacks} ({text})"[:MAX_REASON_CHARS]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return "failed", text + where
