"""One measurement at a time on a device, among all processes of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("/tmp")
"""The same for everybody, so not TMPDIR."""


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Hold the device of that name; waits for whoever holds it. The kernel gives the lock back
    when its holder ends in whatever way, so none is ever stale."""
    descriptor = opened(FOLDER / f"cudal1-ci-{device}.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def opened(path: Path) -> int:
    """A descriptor of the lock's file, which may be another user's: it is only read, which is
    enough to lock it, and no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
