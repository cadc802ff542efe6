"""One measurement at a time on a device, among all processes of this machine.

Who times something holds the device alone. What else makes the device work (an examination, a
build beside which nothing can be timed) may overlap with its like, and never with timing. Whoever
waits is let in before those who come later: a measurement is not put off for ever by examinations
that follow one another without a gap.
"""

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
    """Hold the device of that name alone; waits for all who hold it. The kernel gives the lock back
    when its holder ends in whatever way, so none is ever stale."""
    with held(device, fcntl.LOCK_EX):
        yield


@contextmanager
def shared(device: str) -> Iterator[None]:
    """Hold it beside others that do so, and beside nobody who holds it alone."""
    with held(device, fcntl.LOCK_SH):
        yield


@contextmanager
def held(device: str, how: int) -> Iterator[None]:
    """Stand in the one queue of the device, and give the place in it up when the turn has come."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as queue:
            flock(queue, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_EX)
            flock(stack, FOLDER / f"cudal1-ci-{device}.lock", how)
        yield


def flock(stack: contextlib.ExitStack, path: Path, how: int) -> None:
    """Hold a file's lock until the stack is closed."""
    descriptor = opened(path)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, how)


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
