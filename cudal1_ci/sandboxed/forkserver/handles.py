"""Handle one runner for the verifier: its process, its requests and its failures."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..memory.accelerators import Accelerator, AnySegment
from ..memory.segment import dtype_of
from ..wire.channel import Channel, ChannelClosed, ChannelTimeout
from ..wire.codec import Asks, ProtocolError, answers_or, decode, encode
from ..wire.programs import TreeProgram
from ..wire.runner import (
    AskCached,
    Build,
    LetGo,
    Load,
    Loaded,
    MakeCalls,
    Map,
    Raised,
    SettleIn,
)

if TYPE_CHECKING:
    from .client import Source, Template

R = TypeVar("R")
MAX_LOG_BYTES = 4000
FAILURE = b'{"op": "raised"'
"""Start of an encoded failure (codec.py). A message with another start is decoded later."""
STOPPED = frozenset("tTZX")
"""States of processes that do not run: stopped, traced or ended."""
DEATH_S = 0.5
"""Seconds from the end of a runner's channel to its own end."""


LOST_DEVICE = re.compile(
    r"(CUDA|HIP) error: (device-side assert|(an )?illegal|misaligned address|invalid program "
    r"counter|hardware stack|unspecified launch|operation not supported on (global|shared))"
)
"""Errors after which a process cannot use its GPU any more: each later call fails with the same."""


class RunnerFailure(Exception):
    """A runner raised, died or hung. This is a fact about its program and becomes a verdict."""

    def __init__(
        self,
        kind: str,
        message: str,
        error: Raised | None = None,
        log: str = "",
        is_trusted: bool = False,
    ):
        super().__init__(message)
        self.kind = kind
        """`raised`, `died`, `timeout`, `malformed`"""
        self.message = message
        self.error = error
        """What it raised, where it did."""
        self.log = log
        self.is_trusted = is_trusted
        """Whether the runner was one of the reference in a repetition, where candidates fail
        too."""

    @property
    def stage(self) -> str | None:
        """Return `import` or `compile`, where it failed in one."""
        return None if self.error is None else self.error.stage


@dataclass(frozen=True)
class Unread(Generic[R]):
    """An answer that came and was not read yet, as a clock runs."""

    handle: RunnerHandle
    request: Asks[R]
    body: bytes

    def read(self) -> R:
        """Decode the answer. Raises RunnerFailure."""
        return self.handle.read(self.request, self.body)


class Process:
    """A runner's process, by a descriptor that never refers to another process."""

    def __init__(self, number: int, pidfd: int, keeper: int | None = None):
        self.number = number
        """The number by which its source knows it."""
        self.pidfd = pidfd
        self.group = process_id(pidfd)
        """Its process ID and process group here; 0 or less when it cannot be seen here."""
        self.keeper = keeper
        """Process ID here of the first process of its namespace, where it has one."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, which its children cannot leave. The ID is not
        reused before the template has waited for it, which it does at the verifier's request."""
        with contextlib.suppress(OSError):
            if self.group > 0:
                os.killpg(self.group, number)
            else:
                signal.pidfd_send_signal(self.pidfd, number)

    def pin(self, cores: Sequence[int]) -> None:
        """Pin all of its threads, and those that they start, to these processor cores."""
        with contextlib.suppress(OSError):  # ended, or not to be seen here
            for thread in Path(f"/proc/{self.group}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)

    def has_ended(self, timeout_s: float) -> bool:
        """Return whether it ends within some time."""
        return bool(select.select([self.pidfd], [], [], timeout_s)[0])

    def has_stopped(self) -> bool:
        """Return whether its first process is stopped. Its threads and children stop with it."""
        try:
            stat = Path(f"/proc/{self.group}/stat").read_text(errors="replace")
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] in STOPPED

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def process_id(pidfd: int) -> int:
    """Return the process ID here of a descriptor's process."""
    words = Path(f"/proc/self/fdinfo/{pidfd}").read_text().split()
    return int(words[words.index("Pid:") + 1])


class RunnerHandle:
    """The requests that a verifier can send to one runner."""

    def __init__(
        self,
        scratch: Path,
        template: Template,
        cache: Path | None,
        source: Source,
        is_trusted: bool,
        is_new: bool,
    ):
        self.scratch = scratch
        self.cache = cache
        self.source = source
        self.is_trusted = is_trusted
        self.is_new = is_new
        self.log_path = scratch.with_name(f"{scratch.name}.log")
        self.template = template
        self.channel: Channel | None = None
        self.process: Process | None = None
        self.ended = False
        self.facts = Loaded(
            state=(), imported=(), inexact=(), is_lazy=False, changes_environment=False
        )
        self.segments: dict[str, AnySegment] = {}
        self.outgrown: dict[str, list[AnySegment]] = {}
        self.shared: list[tuple[Map | SettleIn, list[int]]] = []
        """Messages that it gets first, such as of memory that was shared before the process
        started."""
        self.last_words = ""
        self.is_paused = False
        self.is_still = False
        """Whether all of it was seen to have stopped since (timing/quiescence.py),"""
        self.num_restless = 0
        """and how often something ran on."""
        self.spin_s = 0.0
        """Seconds of busy waiting for its answer,"""
        self.doze_s = 0.0
        """after this time, in which no answer is expected."""

    def start(self, checkouts: Sequence[str], device: str | None, timeout_s: float) -> Channel:
        """Fork it if that is not done, and send it the memory that was shared before. A runner that
        loads a program on a `device` may have been forked for that.

        Raises:
            RunnerFailure: It ended, or could not take the memory.
            SandboxError: It could not be confined.
        """
        if self.channel is not None:
            return self.channel
        if self.ended:
            raise self.failure("died", "the process ended")
        spare = None
        if device is not None and not checkouts and not self.is_new:
            spare = self.source.spares.take(self.cache, device)
        if spare is not None:
            channel = self.adopt(spare)
        else:
            self.process, channel = self.template.fork(
                self.scratch, self.log_path, checkouts, self.cache, self.source
            )
            self.template.alive.add(self)
        self.channel = channel
        while self.shared:
            self.map(channel, *self.shared.pop(0), timeout_s)
        return channel

    def adopt(self, other: RunnerHandle) -> Channel:
        """Take over the process of another handle, which has no program yet."""
        assert other.channel is not None
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch, self.log_path, self.cache = other.scratch, other.log_path, other.cache
        self.process = other.process
        self.template.alive.discard(other)
        self.template.alive.add(self)
        self.shared.insert(0, (SettleIn(cache=str(self.cache)), []))
        return other.channel

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and return its answer.

        Raises:
            RunnerFailure: The program raised, the runner died, or it did not answer in time.
        """
        return self.send(request, encode(request), timeout_s).read()

    def send(self, request: Asks[R], body: bytes, timeout_s: float) -> Unread[R]:
        """Send an encoded request while a clock runs. The answer is decoded when it is read, but
        a failure that names itself is read at once. Raises RunnerFailure."""
        channel = self.start(*needs_of(request), timeout_s)
        self.resume()
        try:
            found = Unread(self, request, self.exchange(channel, request, body, [], timeout_s))
        except ChannelTimeout:
            self.end()
            text = f"no answer to `{request.op}` within {timeout_s:.0f} s"
            raise self.failure("timeout", text) from None
        except ChannelClosed:
            raise self.failure("died", self.death()) from None
        if found.body.startswith(FAILURE):
            found.read()
        return found

    def read(self, request: Asks[R], body: bytes) -> R:
        """Decode the answer to a request. Raises RunnerFailure."""
        try:
            answer = decode(answers_or(request, Raised), body)
            if not isinstance(answer, Raised):
                for slot in answer.slots_said():
                    dtype_of(slot.dtype)
                found: R = answer
                return found
        except (ProtocolError, ValueError) as malformed:
            self.end()
            text = f"its answer to `{request.op}` is none ({malformed})"
            raise self.failure("malformed", text) from None
        if LOST_DEVICE.search(answer.message):
            self.end()
        raise self.failure("raised", f"{answer.kind}: {answer.message}", answer)

    def share(
        self, name: str, accelerator: Accelerator, num_bytes: int, timeout_s: float
    ) -> AnySegment:
        """Share memory between the verifier and this runner until the runner ends. Memory of a GPU
        must outlive the processes that opened it. A second call with a name returns the same memory
        where that is large enough.

        Raises:
            RunnerFailure: The runner could not take it.
        """
        before = self.segments.get(name)
        if before is not None and before.num_bytes >= num_bytes:
            return before
        if before is not None:
            self.outgrown.setdefault(name, []).append(before)
        with self.template.spent.over("segment"):
            segment = self.segments[name] = accelerator.segment(num_bytes)
        handle, descriptors = segment.address()
        request = Map(segment=name, num_bytes=segment.num_bytes, handle=handle)
        if self.channel is None:
            self.shared.append((request, descriptors))
        else:
            self.resume()
            self.map(self.channel, request, descriptors, timeout_s)
        return segment

    def let_go(self, names: Sequence[str], most_bytes: int, timeout_s: float) -> None:
        """Release the memory shared under these names and the program's cached memory, where both
        together exceed `most_bytes`. A program may need much for a call and get little. Raises
        RunnerFailure."""
        found = {
            name: [self.segments[name], *self.outgrown.get(name, ())]
            for name in names
            if name in self.segments
        }
        lent_bytes = sum(one.num_bytes for some in found.values() for one in some)
        if lent_bytes + self.ask(AskCached(), timeout_s).num_bytes <= most_bytes:
            return
        self.ask(LetGo(segments=tuple(found)), timeout_s)
        for name, some in found.items():
            for one in some:
                one.close()
            del self.segments[name]
            self.outgrown.pop(name, None)

    def map(
        self,
        channel: Channel,
        request: Map | SettleIn,
        descriptors: Sequence[int],
        timeout_s: float,
    ) -> None:
        """Send a place or memory to the process. Raises RunnerFailure."""
        try:
            body = self.exchange(channel, request, encode(request), descriptors, timeout_s)
        except ChannelTimeout:
            raise self.failure("timeout", f"no answer to `{request.op}`") from None
        except ChannelClosed:
            raise self.failure("died", self.death()) from None
        try:
            self.read(request, body)
        except RunnerFailure as failure:
            said = f"it could not take what it was given: {failure.message[:500]}"
            raise self.failure(failure.kind, said) from None

    def failure(self, kind: str, message: str, error: Raised | None = None) -> RunnerFailure:
        """Return how this runner failed, with the traceback of its error or the end of its
        output."""
        log = self.log() if error is None else error.traceback
        return RunnerFailure(kind, message, error, log, self.is_trusted)

    def exchange(
        self,
        channel: Channel,
        request: Asks[Any],
        body: bytes,
        descriptors: Sequence[int],
        timeout_s: float,
    ) -> bytes:
        """Send and receive. Descriptors that come back are closed, so that they do not pile up."""
        with self.template.spent.over(request.op):
            channel.send_body(body, descriptors)
            reply, unwanted = self.receive(channel, timeout_s)
        for fd in unwanted:
            os.close(fd)
        return reply

    def receive(self, channel: Channel, timeout_s: float) -> tuple[bytes, list[int]]:
        """Return its answer. Processes that time get the device meanwhile, and that time does
        not count."""
        turn = self.template.turn
        if turn is None:
            return channel.receive_body(timeout_s, self.spin_s, self.doze_s)
        return turn.receive(channel, timeout_s)

    def pin(self, cores: Sequence[int]) -> None:
        """Restrict it, with all its threads, to these processor cores."""
        if self.process is not None and not self.ended:
            self.process.pin(cores)

    def cores(self) -> set[int]:
        """Return the processor cores that it may use; none where that cannot be seen here."""
        if self.process is None or self.process.group <= 0:
            return set()
        try:
            return os.sched_getaffinity(self.process.group)
        except OSError:  # ended
            return set()

    def pause(self) -> None:
        """Stop all of its threads and children. A stopped runner cannot work ahead of time."""
        self.is_paused, self.is_still = True, False
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self.is_paused = self.is_still = False
        self.signal(signal.SIGCONT)

    def has_stopped(self) -> bool:
        """Return whether it does not run, if that can be seen from here."""
        return self.process is None or self.ended or self.process.has_stopped()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. A runner that is gone is noticed at the next request."""
        if self.process is not None and not self.ended:
            self.process.signal(number)

    def death(self) -> str:
        """Describe how the process ended."""
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
        """Wait a moment for it to exit, then kill it. Return its status."""
        if self.process is None:
            return None
        self.ended = True
        self.process.has_ended(DEATH_S)
        return self.template.reap(self.process, self.source)

    def log(self) -> str:
        """Return the end of the program's output."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(-min(MAX_LOG_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
                text = log.read(MAX_LOG_BYTES)
        except OSError:
            return self.last_words
        return text.decode(errors="replace")

    def kill(self) -> None:
        """Start its end, which `end` waits for, so that several can end in parallel."""
        self.signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill it and release it. Its log stays readable."""
        try:
            if self.process is not None and not self.ended:
                self.template.reap(self.process, self.source)
        finally:
            self.ended = True
            self.template.alive.discard(self)
            if self.process is not None:
                self.process.close()
            if self.channel is not None:
                self.channel.close()
            for some in (self.segments.values(), *self.outgrown.values()):
                for segment in some:
                    segment.close()
            self.segments, self.outgrown = {}, {}
            self.last_words = self.log()
            self.log_path.unlink(missing_ok=True)
            shutil.rmtree(self.scratch, ignore_errors=True)


def needs_of(request: Asks[Any]) -> tuple[list[str], str | None]:
    """Return what a process needs for a request: readable checkouts, and the device for its
    program."""
    program = request.program if isinstance(request, Load | Build | MakeCalls) else None
    checkouts = [program.root] if isinstance(program, TreeProgram) else []
    return checkouts, request.device if isinstance(request, Load) else None
