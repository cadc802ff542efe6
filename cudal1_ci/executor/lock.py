"""One measurement at a time on a device, among all processes of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(tempfile.gettempdir())


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Hold the device of that name; waits for whoever holds it. The kernel gives the lock back
    when its holder ends in whatever way, so none is ever stale."""
    path = FOLDER / f"cudal1-ci-{device}.lock"
    # For all users of the machine, and never followed or cut: what lies there may not be ours.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
