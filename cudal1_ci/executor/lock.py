"""One measurement at a time on a device, among all processes of this machine.

Who times something holds the device alone. What else makes the device work (an examination, a
build beside which nothing can be timed) may overlap with its like, and never with timing.

While somebody waits to time, nobody new is let in beside the others, and all who wait to time do so
one after another before anybody else examines: of judges that share a device most then examine at
the same time, where in a plain queue those who have something to time would stand between them.
Nobody waits for ever: a judge has to examine again before it has something else to time.

A judge whose files are this machine's takes its share itself, by the same files, and lets it go
while somebody waits to time (worker/giving_way.py).
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
    with contextlib.ExitStack() as stack:
        # Kept from the waiting on: it lets others in who want to time, and nobody else.
        flock(stack, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_SH)
        flock(stack, FOLDER / f"cudal1-ci-{device}.lock", fcntl.LOCK_EX)
        yield


@contextmanager
def shared(device: str) -> Iterator[None]:
    """Hold it beside others that do so, and beside nobody who holds it alone or waits to."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as queue:
            flock(queue, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_EX)
            flock(stack, FOLDER / f"cudal1-ci-{device}.lock", fcntl.LOCK_SH)
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
