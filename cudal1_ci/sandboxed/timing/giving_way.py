"""A judge's turn on a device that others share: let go while somebody times, and taken again.

    with Turn("GPU-5f1c", stop=template.stop, go_on=template.go_on, host=channel) as turn:
        turn.receive(runner, 60.0)  # of a program that is examined

The judge's half of cudal1_ci/processes/lock.py, in the same files. Who times waits until nobody
examines, and of many judges one examines a program that a compiler works on for a minute: all would
wait for that one. So while a judge waits for its runners it looks whether somebody wants to time.
If so all of its runners are stopped, the device is let go, and taken again when nobody times any
more. What a runner has given to the GPU by then comes to its end, which takes milliseconds.

A clock that stands still meanwhile is `awake_s`: a program is not late because it was stopped. The
host hears when the device is waited for, so that it does not take the judge for hung; when it is
gone itself, nobody waits any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ..wire.channel import Channel, ChannelClosed, ChannelTimeout

FOLDER = Path("/tmp")
"""As in cudal1_ci/processes/lock.py."""
LOOK_S = 0.03
GRACE_S = 0.1
"""For which somebody waits before programs are stopped: many examinations end within it."""
TRY_S = 0.01
WAITS = "waits"
"""Key of what the host is told: true while the device is waited for, false after it."""


class Host(Protocol):
    """Who asked; says nothing until it has its answer. A Channel."""

    def send(self, message: dict[str, Any]) -> None: ...

    def has_more(self, timeout_s: float) -> bool: ...


class Turn:
    """Of one request; a context manager. May be looked at by several threads."""

    def __init__(
        self,
        name: str,
        *,
        stop: Callable[[], Any],
        go_on: Callable[[Any], None],
        host: Host,
    ) -> None:
        """
        Args:
            name: Of the device among all processes of the machine.
            stop: Stops what works for this judge; what it returns is given to `go_on`.
        """
        self.queue = FOLDER / f"cudal1-ci-{name}.queue"
        self.lock = FOLDER / f"cudal1-ci-{name}.lock"
        self._stop, self._go_on, self._host = stop, go_on, host
        self._held = contextlib.ExitStack()
        self._mutex = threading.Lock()
        self._lost_s = 0.0
        self._since_s: float | None = None
        """Since when somebody waits, as far as was seen."""

    def __enter__(self) -> Turn:
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def awake_s(self) -> float:
        """Seconds of a clock that stands still while the device is let go; waits for its end."""
        with self._mutex:
            return time.monotonic() - self._lost_s

    def receive(self, channel: Channel, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """What comes over a channel within that time, by the clock that stands still. Raises
        ChannelTimeout, ChannelClosed."""
        self.look()  # what is answered at once is often one of many
        until_s = self.awake_s() + timeout_s
        while not channel.has_more(LOOK_S):
            self.look()
            if self.awake_s() > until_s:
                raise ChannelTimeout("no answer in time")
        return channel.receive(max(LOOK_S, until_s - self.awake_s()))

    def look(self) -> None:
        """Give way to those who have waited for a moment."""
        with self._mutex:
            now_s = time.monotonic()
            if not self._is_waited_for():
                self._since_s = None
            elif self._since_s is None:
                self._since_s = now_s
            elif now_s - self._since_s > GRACE_S:
                stopped = self._stop()
                try:
                    self._held.close()
                    self._take()
                finally:
                    self._go_on(stopped)
                    self._lost_s += time.monotonic() - now_s
                    self._since_s = None

    def _is_waited_for(self) -> bool:
        with contextlib.ExitStack() as stack:
            return not flock(stack, self.queue, fcntl.LOCK_EX)

    def _take(self) -> None:
        """Beside others who examine, behind those who wait to time. Raises ChannelClosed when the
        host is gone."""
        self._host.send({WAITS: True})
        with contextlib.ExitStack() as queue:
            self._wait_for(queue, self.queue, fcntl.LOCK_EX)
            self._wait_for(self._held, self.lock, fcntl.LOCK_SH)
        self._host.send({WAITS: False})

    def _wait_for(self, stack: contextlib.ExitStack, path: Path, how: int) -> None:
        while not flock(stack, path, how):
            if self._host.has_more(TRY_S):
                raise ChannelClosed("the host hung up")


def flock(stack: contextlib.ExitStack, path: Path, how: int) -> bool:
    """Hold a file's lock until the stack is closed; whether it was free. The file may be another
    user's: it is only read, which is enough to lock it, and no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(path, flags)
            break
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644))
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    stack.callback(os.close, descriptor)
    return True
