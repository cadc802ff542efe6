"""Let one measurement at a time run on a device, among all processes of this machine.

A process that times holds the device alone. Other work on the device may overlap with its kind, but
never with timing. Such work is an examination, or a build that would disturb timing.

While a process waits to time, no further process gets a share of the device. All that wait to time
go first, one after another; then the others examine. Verifiers that share a device therefore mostly
examine at the same time. In a plain queue, measurements would separate the examinations.
Every wait ends: a verifier must examine again before it has something else to time. A process whose
time is over gives up (device_wait.py).

A verifier that uses this machine's files takes its share itself, with the same files. It releases
the share while a process waits to time (sandboxed/timing/giving_way.py).
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
"""The same folder for all processes, so not TMPDIR."""


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Hold the device of that name alone, after a wait for all holders. The kernel releases the
    lock when its holder ends, so no lock is ever stale.

    Raises:
        GaveUp: The time for waiting was over.
    """
    with contextlib.ExitStack() as stack:
        # Held during the wait: it admits processes that want to time, and no others.
        flock(stack, FOLDER / f"cudal1-ci-{device}.queue", fcntl.LOCK_SH)
        flock(stack, FOLDER / f"cudal1-ci-{device}.lock", fcntl.LOCK_EX)
        yield


@contextmanager
def shared(device: str) -> Iterator[None]:
    """Hold the device together with other shared holders. It waits for a process that holds the
    device alone or waits to. Raises GaveUp as `exclusive` does."""
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
    except BaseException:  # also of an interrupt
        wait.leave()
        raise
    stack.callback(os.close, descriptor)
    if wait.error is not None:
        raise wait.error


class Wait:
    """A wait for a file's lock, in a thread because nothing ends the kernel's own wait. Repeated
    attempts would come after all processes that wait."""

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
        """Return whether the lock is held, or cannot be."""
        return self._has_ended.wait(timeout_s)

    def leave(self) -> None:
        """Close the file, now or once the kernel grants the lock that is no longer wanted."""
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
    """Return a descriptor of the lock's file, which may belong to another user. The file is
    opened for reading, which is enough to lock it, and no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
