"""One measurement at a time on a device, among all processes of this machine.

Who times something holds the device alone. What else makes the device work (an examination, a
build beside which nothing can be timed) may overlap with its like, and never with timing.

While somebody waits to time, nobody new is let in beside the others, and all who wait to time do so
one after another before anybody else examines: of judges that share a device most then examine at
the same time, where in a plain queue those who have something to time would stand between them.
Nobody waits for ever: a judge has to examine again before it has something else to time. Who has no
time left gives up (patience.py).

A judge whose files are this machine's takes its share itself, by the same files, and lets it go
while somebody waits to time (sandboxed/timing/giving_way.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1_ci.processes.device_wait import is_patient_for_ever, until

FOLDER = Path("/tmp")
"""The same for everybody, so not TMPDIR."""


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Hold the device of that name alone; waits for all who hold it. The kernel gives the lock back
    when its holder ends in whatever way, so none is ever stale.

    Raises:
        GaveUp: The time for waiting was over.
    """
    with contextlib.ExitStack() as stack:
        # Kept from the waiting on: it lets others in who want to time, and nobody else.
        flock(stack, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_SH)
        flock(stack, FOLDER / f"cudal1-ci-{device}.lock", fcntl.LOCK_EX)
        yield


@contextmanager
def shared(device: str) -> Iterator[None]:
    """Hold it beside others that do so, and beside nobody who holds it alone or waits to. Raises
    GaveUp as `exclusive` does."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as queue:
            flock(queue, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_EX)
            flock(stack, FOLDER / f"cudal1-ci-{device}.lock", fcntl.LOCK_SH)
        yield


def flock(stack: contextlib.ExitStack, path: Path, how: int) -> None:
    """Hold a file's lock until the stack is closed."""
    descriptor = opened(path)
    if is_patient_for_ever():
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, how)
        return
    wait = Wait(descriptor, how)
    try:
        until(wait.is_over)
    except BaseException:  # of an interrupt too
        wait.leave()
        raise
    stack.callback(os.close, descriptor)
    if wait.error is not None:
        raise wait.error


class Wait:
    """For a file's lock, in a thread, as nothing ends the kernel's own; to ask for it again and
    again instead would come after all who wait."""

    def __init__(self, descriptor: int, how: int) -> None:
        self.error: OSError | None = None
        self._descriptor, self._how = descriptor, how
        self._mutex = threading.Lock()
        self._has_ended = threading.Event()
        self._is_left = False
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            self._has_ended.set()
        except BlockingIOError:
            threading.Thread(target=self._wait, name="lock", daemon=True).start()

    def is_over(self, timeout_s: float) -> bool:
        """Whether the lock is held, or cannot be."""
        return self._has_ended.wait(timeout_s)

    def leave(self) -> None:
        """Close the file, now or once the kernel hands out what nobody wants any more."""
        with self._mutex:
            self._is_left = True
            if self._has_ended.is_set():
                os.close(self._descriptor)

    def _wait(self) -> None:
        try:
            fcntl.flock(self._descriptor, self._how)
        except OSError as error:
            self.error = error
        with self._mutex:
            self._has_ended.set()
            if self._is_left:
                os.close(self._descriptor)


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
