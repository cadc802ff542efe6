"""The judge's hold on its runners: fork one, ask it, notice how it ends, leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .accelerators import Accelerator, AnySegment
from .channel import Channel, ChannelClosed, ChannelTimeout

MAX_LOG_CHARS = 4000
TEMPLATE_START_S = 120.0
"""Importing torch from a cold disk took up to 40 s; three times that is broken, not slow."""


class RunnerFailure(Exception):
    """A runner raised, died or hung: a fact about its program, turned into a verdict."""

    def __init__(self, kind: str, message: str, error: dict[str, Any] | None = None, log: str = ""):
        super().__init__(message)
        self.kind = kind
        """`raised`, `died`, `timeout`"""
        self.message = message
        self.error = error or {}
        self.log = log


class Template:
    """The warm process and its forks."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, memory_bytes: int | None
    ):
        self.process = process
        self.channel = channel
        self.memory_bytes = memory_bytes
        # Inside of the folder that the host made and removes.
        self.scratch = Path(tempfile.mkdtemp(prefix="runners-", dir=Path.home()))
        self.known: set[str] = set()
        self.lock = threading.Lock()
        """Runners are opened side by side; the template answers one request at a time."""

    def warm(self, modules: list[str]) -> None:
        """Import in the template what a runner had to import, once."""
        fresh = [name for name in modules if name not in self.known]
        if fresh:
            self.known.update(fresh)
            with contextlib.suppress(ChannelTimeout), self.lock:
                message = {"op": "warm", "modules": fresh, "path": []}
                self.channel.ask(message, TEMPLATE_START_S)

    @contextlib.contextmanager
    def runner(self) -> Iterator[RunnerHandle]:
        """A fresh runner, killed with all that it started at the end."""
        ours, theirs = socket.socketpair()
        scratch = Path(tempfile.mkdtemp(prefix="r", dir=self.scratch))
        message = {
            "op": "fork",
            "scratch": str(scratch),
            "log": str(scratch / "log"),
            "memory_bytes": self.memory_bytes,
        }
        with theirs, self.lock:
            self.channel.send(message, [theirs.fileno()])
            reply, _ = self.channel.receive(TEMPLATE_START_S)
        handle = RunnerHandle(Channel(ours), reply["pid"], scratch, self)
        try:
            yield handle
        finally:
            handle.end()

    def reap(self, pid: int) -> int | None:
        """Kill a runner's group and learn how it ended."""
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        with self.lock:
            status: int | None = self.channel.ask({"op": "reap", "pid": pid}, 30.0)["status"]
        return status

    def close(self) -> None:
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


class RunnerHandle:
    """What the judge may ask of one runner."""

    def __init__(self, channel: Channel, pid: int, scratch: Path, template: Template):
        self.channel = channel
        self.pid = pid
        self.scratch = scratch
        self.template = template
        self.ended = False
        self.facts: dict[str, Any] = {}
        self.segments: list[AnySegment] = []

    def ask(self, op: str, timeout_s: float, **message: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            RunnerFailure: The program raised, the runner died, or it did not answer in time.
        """
        self.resume()
        try:
            reply = self.channel.ask({"op": op, **message}, timeout_s)
        except ChannelTimeout:
            self.end()
            raise RunnerFailure(
                "timeout", f"no answer to `{op}` within {timeout_s:.0f} s", log=self.log()
            ) from None
        except ChannelClosed:
            raise RunnerFailure("died", self.death(), log=self.log()) from None
        error = reply.get("error")
        if error:
            message_text = f"{error.get('type')}: {error.get('message')}"
            raise RunnerFailure("raised", message_text, error, error.get("traceback", ""))
        return reply

    def share(
        self, name: str, accelerator: Accelerator, num_bytes: int, timeout_s: float
    ) -> AnySegment:
        """New memory that the judge and this runner both see, until the runner ends: a GPU's
        memory must outlive those who opened it.

        Raises:
            RunnerFailure: The runner could not take it.
        """
        self.resume()
        segment = accelerator.segment(num_bytes)
        self.segments.append(segment)
        words, descriptors = segment.address()
        message = {"op": "map", "segment": name, "num_bytes": segment.num_bytes, **words}
        try:
            self.channel.send(message, descriptors)
            reply, _ = self.channel.receive(timeout_s)
        except ChannelTimeout:
            raise RunnerFailure("timeout", "no answer to `map`", log=self.log()) from None
        except ChannelClosed:
            raise RunnerFailure("died", self.death(), log=self.log()) from None
        if "error" in reply:
            error = reply["error"]
            raise RunnerFailure("raised", f"{error.get('type')}: {error.get('message')}", error)
        return segment

    def pause(self) -> None:
        """Stop all of its threads; what a runner does not do it cannot do ahead of time."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """A runner that is gone is noticed when it is asked."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, number)

    def death(self) -> str:
        """How the process ended, in words."""
        status = None if self.ended else self.template_status()
        if status is None:
            return "the process ended"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGKILL:
                return "the process closed its channel, or was killed (out of memory?)"
            return f"the process was ended by {signal.Signals(number).name}"
        return f"the process exited with code {os.WEXITSTATUS(status)}"

    def template_status(self) -> int | None:
        """Wait a moment for an exit of its own, then kill."""
        self.ended = True
        pidfd = None
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(self.pid)
        if pidfd is not None:
            import select

            select.select([pidfd], [], [], 0.5)
            os.close(pidfd)
        return self.template.reap(self.pid)

    def log(self) -> str:
        """The last that the program printed."""
        try:
            text = (self.scratch / "log").read_bytes()[-MAX_LOG_CHARS:]
        except OSError:
            return ""
        return text.decode(errors="replace")

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.template.reap(self.pid)
        self.channel.close()
        while self.segments:
            self.segments.pop().close()
        shutil.rmtree(self.scratch, ignore_errors=True)
