"""One request and its reply at a time, as length-prefixed JSON over a Unix socket.

The host's end of what the worker's `channel.py` speaks. Knows nothing of what is said, nor of how
the process at the other end was started.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.device_wait import is_patient_for_ever, until

HEADER = struct.Struct("!Q")
WAITS = "waits"
"""As in giving_way.py: a worker that was given a `turn` may say before its reply that it
waits for the device, and later that it does so no more. That time does not count. No other worker
may: a tracer runs what it is asked to trace."""
MAX_REPLY_BYTES = 256 * 2**20


class Conversation:
    """With a worker of that role; `ending` says why it is gone, once it is."""

    def __init__(self, end: socket.socket, role: str, ending: Callable[[], str]):
        self.end = end
        self.role = role
        self.ending = ending

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            WorkerError: The worker is gone, or did not answer in time.
            GaveUp: It waits for the device, and the time for that is over.
        """
        body = json.dumps(request).encode()
        deadline = time.monotonic() + timeout_s
        try:
            self.end.settimeout(timeout_s)
            self.end.sendall(HEADER.pack(len(body)) + body)
            reply = self._message(deadline)
            while "turn" in request and isinstance(reply, dict) and WAITS in reply:
                since_s, waits = time.monotonic(), reply[WAITS]
                if waits and not is_patient_for_ever():
                    until(self._has_more)
                reply = self._message(None if waits else deadline)
                if waits:
                    deadline += time.monotonic() - since_s
        except TimeoutError as error:
            raise WorkerError(
                f"the {self.role} did not answer `{request.get('op')}` within {timeout_s:.0f} s"
            ) from error
        except (OSError, EOFError, ValueError) as error:
            raise WorkerError(self.ending()) from error
        if not isinstance(reply, dict):
            raise WorkerError(f"the {self.role} answered with a {type(reply).__name__}")
        return reply

    def close(self) -> None:
        """Hang up: the worker ends."""
        self.end.close()

    def _has_more(self, timeout_s: float) -> bool:
        """Whether something came meanwhile, if only the end."""
        self.end.settimeout(timeout_s)
        try:
            self.end.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        return True

    def _message(self, deadline: float | None) -> Any:
        """What comes next, at the latest then. Raises TimeoutError."""
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > MAX_REPLY_BYTES:
            raise WorkerError(f"the {self.role} announced a reply of {length} bytes")
        return json.loads(self._read(length, deadline))

    def _read(self, size: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while size:
            left_s = None if deadline is None else max(1e-6, deadline - time.monotonic())
            self.end.settimeout(left_s)
            part = self.end.recv(min(size, 2**20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
