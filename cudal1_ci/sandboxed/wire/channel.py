"""Send length-prefixed JSON over a Unix socket, with file descriptors.

The channel serves both ends of every wall: host and worker, verifier and runner. It knows only the
form of messages (codec.py). A peer's stdout is never a channel, and a peer may be hostile. The
length is capped, and any other message than the expected one raises a ProtocolError.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from .codec import Form, decode, encode

MAX_MESSAGE_BYTES = 64 * 2**20
HEADER = struct.Struct("!Q")
T = TypeVar("T")


class ChannelClosed(Exception):
    """The peer is gone."""


class ChannelTimeout(Exception):
    """The peer did not answer in time."""


class Channel:
    """One end of a conversation."""

    def __init__(self, end: socket.socket, most_bytes: int = MAX_MESSAGE_BYTES):
        self.end = end
        self.most_bytes = most_bytes
        """Most bytes of an incoming message."""

    def send(self, message: Any, fds: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Send a message, as `send_body` does."""
        self.send_body(encode(message), fds, timeout_s)

    def send_body(
        self, body: bytes, fds: Sequence[int] = (), timeout_s: float | None = None
    ) -> None:
        """Send an encoded message.

        Raises:
            ChannelClosed: The peer is gone.
            ChannelTimeout: It has not taken all of it within `timeout_s` seconds.
        """
        try:
            self.end.settimeout(timeout_s)
            if fds:
                socket.send_fds(self.end, [HEADER.pack(len(body))], list(fds))
                self.end.sendall(body)
            else:
                self.end.sendall(HEADER.pack(len(body)) + body)
        except TimeoutError as error:
            raise ChannelTimeout("the message was not taken in time") from error
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, form: Form[T], timeout_s: float | None = None) -> tuple[T, list[int]]:
        """Return the next message and the descriptors that came with it.

        Raises:
            ProtocolError: It is not of that form. The descriptors are closed.
            ChannelClosed, ChannelTimeout: As `receive_body` does.
        """
        body, fds = self.receive_body(timeout_s)
        try:
            return decode(form, body), fds
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def receive_body(
        self, timeout_s: float | None = None, spin_s: float = 0.0, doze_s: float = 0.0
    ) -> tuple[bytes, list[int]]:
        """Return the next message undecoded.

        For `doze_s` seconds no message is expected. For `spin_s` seconds after that the process
        waits busily: a sleeping one takes some ten microseconds to wake up, and not always as many.

        Raises:
            ChannelClosed: The peer ended, or announced too much.
            ChannelTimeout: No complete message came within `timeout_s` seconds.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if spin_s:
            most_s = math.inf if timeout_s is None else timeout_s
            self._spin(min(doze_s, most_s), min(spin_s, most_s))
        header, fds = self._read(HEADER.size, deadline, with_fds=True)
        try:
            (length,) = HEADER.unpack(header)
            if length > self.most_bytes:
                raise ChannelClosed(f"a message of {length} bytes was announced")
            body, _ = self._read(length, deadline)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return body, fds

    def has_more(self, timeout_s: float) -> bool:
        """Return whether data or the peer's end has come, or comes within that time."""
        return bool(select.select([self.end], [], [], timeout_s)[0])

    def _spin(self, doze_s: float, spin_s: float) -> None:
        """Wait until data has come, at most for both times."""
        until_s = time.monotonic() + doze_s + spin_s
        self.end.settimeout(doze_s)
        while time.monotonic() < until_s:
            try:
                self.end.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, TimeoutError):
                self.end.settimeout(0.0)
                continue
            except OSError:
                pass  # the read that follows reports it
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
