"""One measurement at a time on a device, among all processes of this machine.

Who times something holds the device alone. What else makes the device work (an examination, a
build beside which nothing can be timed) may overlap with its like, and never with timing. Whoever
waits is let in before those who come later: a measurement is not put off for ever by examinations
that follow one another without a gap. An examination in which a program compiles for a minute does
not hold up who wants to time for a second: it is stopped for so long (`giving_way`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1_ci.executor import pausing

FOLDER = Path("/tmp")
"""The same for everybody, so not TMPDIR."""
LOOK_S = 0.05
GRACE_S = 0.25
"""For which somebody waits before an examination is stopped: most end within it."""


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
def giving_way(device: str, pid: int) -> Iterator[Callable[[], float]]:
    """Hold it beside others, for the work of process `pid` and of what that starts. While somebody
    waits for longer than a moment they are all stopped, and the device is let go. Yields what says
    for how many seconds they were so far. Processes of another user are not stopped: who waits then
    waits for their end."""
    way = Way(device, pid)
    try:
        way.thread.start()
        yield way.paused_s
    finally:
        way.has_ended.set()
        way.thread.join()
        way.lock.close()


class Way:
    """A hold that is given up and taken again."""

    def __init__(self, device: str, pid: int):
        self.device = device
        self.pid = pid
        self.lock = contextlib.ExitStack()
        self.lock.enter_context(shared(device))
        self._paused_s = 0.0
        self._since_s: float | None = None
        """When it was stopped, while it is."""
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="giving way", daemon=True)

    def paused_s(self) -> float:
        """Until now, the pause that there may be included: a host that waits asks in the middle."""
        since_s = self._since_s
        return self._paused_s + (0.0 if since_s is None else time.monotonic() - since_s)

    def watch(self) -> None:
        since_s: float | None = None
        while not self.has_ended.wait(LOOK_S):
            now_s = time.monotonic()
            if not is_waited_for(self.device):
                since_s = None
            elif since_s is None:
                since_s = now_s
            elif now_s - since_s > GRACE_S:
                since_s = None
                try:
                    self.pause()
                except PermissionError:
                    return

    def pause(self) -> None:
        """Let those in who wait. Raises PermissionError, and has changed nothing then."""
        began_s = time.monotonic()
        stopped = pausing.stop(self.pid)
        self._since_s = began_s
        try:
            self.lock.close()
            self.lock.enter_context(shared(self.device))
        finally:
            pausing.go_on(stopped)
            self._paused_s, self._since_s = self.paused_s(), None


def is_waited_for(device: str) -> bool:
    """Whether somebody stands in the queue."""
    with contextlib.ExitStack() as stack:
        try:
            flock(stack, queue_of(device), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def queue_of(device: str) -> Path:
    return FOLDER / f"cudal1-ci-{device}.queue"


@contextmanager
def held(device: str, how: int) -> Iterator[None]:
    """Stand in the one queue of the device, and give the place in it up when the turn has come."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as queue:
            flock(queue, queue_of(device), fcntl.LOCK_EX)
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
