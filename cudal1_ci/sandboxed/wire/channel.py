"""Length-prefixed JSON over a Unix socket, with file descriptors.

Knows nothing of what is said. A peer's stdout is never a channel, and a peer may be hostile: the
length is capped, and anything that is not a JSON object ends the conversation.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE_BYTES = 64 * 2**20
HEADER = struct.Struct("!Q")


class ChannelClosed(Exception):
    """The peer is gone."""


class ChannelTimeout(Exception):
    """The peer did not answer in time."""


class Channel:
    """One end of a conversation."""

    def __init__(self, end: socket.socket):
        self.end = end

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Raises ChannelClosed when the peer is gone."""
        body = json.dumps(message).encode()
        try:
            self.end.settimeout(None)
            if fds:
                socket.send_fds(self.end, [HEADER.pack(len(body))], list(fds))
                self.end.sendall(body)
            else:
                self.end.sendall(HEADER.pack(len(body)) + body)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(
        self, timeout_s: float | None = None, spin_s: float = 0.0, doze_s: float = 0.0
    ) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it. For `spin_s` seconds, after
        `doze_s` in which it is not expected, the process looks for it without a pause: one that
        sleeps takes some ten microseconds to wake up, and not always as many.

        Raises:
            ChannelClosed: The peer ended, or sent what is not a message.
            ChannelTimeout: Nothing whole came within `timeout_s` seconds.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if spin_s:
            most_s = math.inf if timeout_s is None else timeout_s
            self._spin(min(doze_s, most_s), min(spin_s, most_s))
        header, fds = self._read(HEADER.size, deadline, with_fds=True)
        try:
            (length,) = HEADER.unpack(header)
            if length > MAX_MESSAGE_BYTES:
                raise ChannelClosed(f"a message of {length} bytes was announced")
            body, _ = self._read(length, deadline)
            message = json.loads(body)
        except BaseException as error:
            for fd in fds:
                os.close(fd)
            if isinstance(error, ValueError):
                raise ChannelClosed(f"not a message: {error}") from error
            raise
        if not isinstance(message, dict):
            raise ChannelClosed("not a message: expected a JSON object")
        return message, fds

    def has_more(self, timeout_s: float) -> bool:
        """Whether something has come, or comes within that time; the peer's end is something."""
        return bool(select.select([self.end], [], [], timeout_s)[0])

    def ask(self, message: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        """Send and wait for the answer."""
        self.send(message)
        return self.receive(timeout_s)[0]

    def _spin(self, doze_s: float, spin_s: float) -> None:
        """Return when something has come, at the latest after some time."""
        until_s = time.monotonic() + doze_s + spin_s
        self.end.settimeout(doze_s)
        while time.monotonic() < until_s:
            try:
                self.end.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, TimeoutError):
                self.end.settimeout(0.0)
                continue
            except OSError:
                pass  # the read that follows says so
            return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.end.close()

    def _read(
        self, size: int, deadline: float | None, with_fds: bool = False
    ) -> tuple[bytes, list[int]]:
        parts: list[bytes] = []
        fds: list[int] = []
        while size:
            remaining = None if deadline is None else max(1e-6, deadline - time.monotonic())
            self.end.settimeout(remaining)
            try:
                if with_fds and not parts:
                    part, fds, _, _ = socket.recv_fds(self.end, size, 8)
                else:
                    part = self.end.recv(min(size, 2**20))
            except TimeoutError as error:
                raise ChannelTimeout("no answer in time") from error
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not part:
                raise ChannelClosed("the peer ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts), fds
