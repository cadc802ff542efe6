"""Hold a shared device for a verifier, release it while others time, and take it again.

    with Turn("GPU-5f1c", stop=template.stop, go_on=template.go_on, host=channel) as turn:
        turn.receive(runner, 60.0)  # of a program that is examined

This is the verifier's half of cudal1_ci/processes/lock.py, with the same files. A process that
times waits until no other examines. One of many verifiers may examine a program that compiles for a
minute, and all would wait for it. So a verifier that waits for its runners checks whether another
process wants to time. If so, it stops all of its runners and releases the device. It takes the
device again when no process times any more. After a long wait it keeps it for a while. Work that a
runner has given to the GPU by then finishes, which takes milliseconds.

`awake_s` is a clock that stops meanwhile: a program is not late because it was stopped. The host
gets a message when the device is waited for, so that the verifier does not seem to hang. When the
host is gone, the wait ends.
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
from ..wire.verifier import Waits

FOLDER = Path("/tmp")
"""As in cudal1_ci/processes/lock.py."""
LOOK_S = 0.03
GRACE_S = 0.1
"""Seconds that a process waits before programs are stopped. Many examinations end within it."""
TRY_S = 0.01
LONG_S, KEPT_SHARE = 5.0, 0.25
"""After a wait of this length the device is kept for this share of it. Else a process that times
again and again would leave only moments for a program that takes a minute to compile."""


class Host(Protocol):
    """The sender of the request, a Channel. It sends nothing until it has its answer."""

    def send(self, message: Waits) -> None: ...

    def has_more(self, timeout_s: float) -> bool: ...


class Turn:
    """A hold on the device for one request; a context manager. Several threads may call `look`."""

    def __init__(
        self,
        name: str,
        *,
        stop: Callable[[], Any],
        go_on: Callable[[Any], None],
        host: Host,
    ) -> None:
        """Create a hold that is not active yet.

        Args:
            name: Of the device among all processes of the machine.
            stop: Stops what works for this verifier; its result is given to `go_on`.
        """
        self.queue = FOLDER / f"cudal1-ci-{name}.queue"
        self.lock = FOLDER / f"cudal1-ci-{name}.lock"
        self._stop, self._go_on, self._host = stop, go_on, host
        self._held = contextlib.ExitStack()
        self._mutex = threading.Lock()
        self._lost_s = 0.0
        self._since_s: float | None = None
        """When a waiting process was first seen."""
        self._keeps_until_s = 0.0
        """When the device may be released again."""

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
        """Return seconds of a clock that stops while the device is released, after a wait for
        its return."""
        with self._mutex:
            return time.monotonic() - self._lost_s

    def receive(self, channel: Channel, timeout_s: float) -> tuple[bytes, list[int]]:
        """Return what comes over a channel within that time, by the clock that stops. Raises
        ChannelTimeout, ChannelClosed."""
        self.look()  # an immediate answer is often one of many
        until_s = self.awake_s() + timeout_s
        while not channel.has_more(LOOK_S):
            self.look()
            if self.awake_s() > until_s:
                raise ChannelTimeout("no answer in time")
        return channel.receive_body(max(LOOK_S, until_s - self.awake_s()))

    def look(self) -> None:
        """Release the device to processes that have waited for a moment."""
        with self._mutex:
            now_s = time.monotonic()
            if not self._is_waited_for():
                self._since_s = None
            elif self._since_s is None:
                self._since_s = now_s
            elif now_s - self._since_s > GRACE_S and now_s > self._keeps_until_s:
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
        """Share the device with others that examine, after processes that wait to time. Raises
        ChannelClosed when the host is gone."""
        began_s = time.monotonic()
        self._host.send(Waits(is_waiting=True))
        with contextlib.ExitStack() as queue:
            self._wait_for(queue, self.queue, fcntl.LOCK_EX)
            self._wait_for(self._held, self.lock, fcntl.LOCK_SH)
        self._host.send(Waits(is_waiting=False))
        now_s = time.monotonic()
        if now_s - began_s > LONG_S:
            self._keeps_until_s = now_s + KEPT_SHARE * (now_s - began_s)

    def _wait_for(self, stack: contextlib.ExitStack, path: Path, how: int) -> None:
        while not flock(stack, path, how):
            if self._host.has_more(TRY_S):
                raise ChannelClosed("the host hung up")


def flock(stack: contextlib.ExitStack, path: Path, how: int) -> bool:
    """Hold a file's lock until the stack is closed. Return whether it was free. The file may be
    another user's: it is opened for reading, which is enough to lock it, and no link is
    followed."""
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
