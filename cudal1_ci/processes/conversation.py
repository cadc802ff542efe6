"""Exchange one request and its reply at a time over a channel to a worker.

This module knows neither the content of messages nor how the other process was started.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from cudal1_ci.errors import WorkerError, WorkerTimeout
from cudal1_ci.processes.device_wait import is_patient_for_ever, until
from cudal1_ci.sandboxed.wire.channel import Channel, ChannelClosed, ChannelTimeout
from cudal1_ci.sandboxed.wire.codec import Asks, Form, ProtocolError
from cudal1_ci.sandboxed.wire.verifier import Waits, answers_in_turn

R = TypeVar("R")
MAX_REPLY_BYTES = 256 * 2**20


class Conversation:
    """A conversation with a worker of a role. Once the worker has ended, `ending` says why."""

    def __init__(self, end: socket.socket, role: str, ending: Callable[[], str]):
        self.channel = Channel(end, MAX_REPLY_BYTES)
        self.role = role
        self.ending = ending

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and wait for its reply. A worker may report that it waits for the device;
        the time until it reports the end of the wait does not count.

        Raises:
            WorkerError: The worker is gone, did not answer in time, or answered something else.
            GaveUp: It waits for the device, and the time for that is over.
        """
        form = answers_in_turn(request)
        deadline = time.monotonic() + timeout_s
        try:
            self.channel.send(request, timeout_s=timeout_s)
            reply = self._received(form, deadline - time.monotonic())
            while isinstance(reply, Waits):
                since_s, waits = time.monotonic(), reply.is_waiting
                if waits and not is_patient_for_ever():
                    until(self.channel.has_more)
                left_s = None if waits else deadline - time.monotonic()
                reply = self._received(form, left_s)
                if waits:
                    deadline += time.monotonic() - since_s
        except ChannelTimeout as error:
            raise WorkerTimeout(
                f"the {self.role} did not answer `{request.op}` within {timeout_s:.0f} s"
            ) from error
        except ChannelClosed as error:
            raise WorkerError(self.ending()) from error
        except ProtocolError as error:
            raise WorkerError(f"the {self.role} did not answer `{request.op}`: {error}") from error
        found: R = reply
        return found

    def _received(self, form: Form[R], timeout_s: float | None) -> R:
        """Return the next message. Descriptors that come with it are closed."""
        message, unwanted = self.channel.receive(form, timeout_s)
        for fd in unwanted:
            os.close(fd)
        return message

    def close(self) -> None:
        """Close the channel, so that the worker ends."""
        self.channel.close()
