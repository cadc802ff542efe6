"""The judge's hold on its runners: fork one, ask it, notice how it ends, leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import replies
from .accelerators import Accelerator, AnySegment
from .build_keys import software_key
from .builds import Builds
from .channel import Channel, ChannelClosed, ChannelTimeout
from .giving_way import LOOK_S, Turn
from .sandbox import Granted, SandboxError, is_granted
from .spares import Spares
from .spent import Spent
from .torch_compiler import modules_for

MAX_LOG_BYTES = 4000
STOPPED = frozenset("tTZX")
"""States of processes that do not run: stopped, traced, and those that have ended."""
TEMPLATE_START_S = 120.0
"""Importing torch from a cold disk took up to 40 s; three times that is broken, not slow."""
DEATH_S = 0.5
"""From the end of a runner's channel to its own."""
STOP_S, STOP_LOOK_S = 0.2, 0.002
"""For the call into the kernel that a process which is to stop may be in."""
REAP_S = 30.0
"""The kernel frees the memory of a thousand processes in less."""


class RunnerFailure(Exception):
    """A runner raised, died or hung: a fact about its program, turned into a verdict."""

    def __init__(
        self,
        kind: str,
        message: str,
        error: dict[str, Any] | None = None,
        log: str = "",
        is_trusted: bool = False,
    ):
        super().__init__(message)
        self.kind = kind
        """`raised`, `died`, `timeout`, `malformed`"""
        self.message = message
        self.error = error or {}
        self.log = log
        self.is_trusted = is_trusted
        """Whether the runner was one of the reference in a launch, where candidates fail too."""


class Source:
    """A process that runners are forked from, which answers one request at a time: they are opened
    side by side."""

    def __init__(self, channel: Channel, known: Iterable[str] = ()):
        self.channel = channel
        self.known = set(known)
        """Modules that it was told of."""
        self.lock = threading.Lock()

    def ask(
        self, message: dict[str, Any], timeout_s: float, descriptors: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        with self.lock:
            self.channel.send(message, descriptors)
            return self.channel.receive(timeout_s)

    def warm(self, modules: Iterable[str]) -> int:
        """Import what it was not told of yet; how many modules those were."""
        fresh = [name for name in modules if name not in self.known]
        self.known.update(fresh)
        if fresh:
            with contextlib.suppress(ChannelTimeout):
                message = {"op": "warm", "modules": fresh, "path": []}
                return int(self.ask(message, TEMPLATE_START_S)[0]["imported"])
        return 0


class Template:
    """The warm process and its forks.

    Raises:
        SandboxError: It ended before it could say what it is allowed to do here.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, memory_bytes: int | None
    ):
        self.process = process
        self.plain = Source(channel)
        self.compiling: Source | None = None
        """Of programs that ask for torch.compile, once there is one."""
        self.memory_bytes = memory_bytes
        self.cores: list[int] | None = None
        """Where runners may compute: more threads than the reference's get no more of them."""
        # Inside of the folder that the host made and removes.
        self.scratch = Path(tempfile.mkdtemp(prefix="runners-", dir=Path.home()))
        self.builds = Builds(self.scratch / "builds")
        self.environment: dict[str, str] = {}
        """Variables that runners have besides those of the template."""
        self.has_gpu = True
        """Whether runners may open the devices of a GPU."""
        self.spent = Spent()
        self.branching = threading.Lock()
        self.spares = Spares(self)
        self.turn: Turn | None = None
        """On the device, of the request at hand; None where nobody is given way to."""
        self.alive: set[RunnerHandle] = set()
        """Those that have a process."""
        try:
            reply, _ = channel.receive(TEMPLATE_START_S)
        except (ChannelClosed, ChannelTimeout) as error:
            raise SandboxError(f"the template could not be started: {error}") from error
        self.sandbox: Granted = reply["sandbox"]
        """By layer: True, or the version of an interface, or why the kernel refused it."""

    def warm(self, modules: Iterable[str]) -> None:
        """Import in the template what a runner had to import, once."""
        modules = tuple(modules)
        if self.compiling is not None:
            self.compiling.warm(modules)
        if self.plain.warm(modules):
            self.spares.renew()

    def source(self, program: dict[str, Any] | None) -> Source:
        """Where runners of a program are forked from: a second process, begun when the first
        program asks for torch.compile, knows that."""
        modules = modules_for(program) if program else ()
        if not modules:
            return self.plain
        with self.branching:
            if self.compiling is None:
                ours, theirs = socket.socketpair()
                with theirs:
                    self.plain.ask({"op": "branch"}, TEMPLATE_START_S, [theirs.fileno()])
                self.compiling = Source(Channel(ours), self.plain.known)
            with self.spent.over("warm"):
                self.compiling.warm(modules)
        return self.compiling

    @contextlib.contextmanager
    def runner(
        self,
        program: dict[str, Any] | None = None,
        is_trusted: bool = False,
        is_new: bool = False,
    ) -> Iterator[RunnerHandle]:
        """A fresh runner, killed with all that it started at the end. It is forked when it is first
        asked something: what it may read is settled then, and the request says what it needs. It is
        not told whether it is trusted; its failures say so. What a program compiles outlives its
        runner, for the same program alone: whoever can write there chooses what the next one
        finds. One that need not be `is_new` may be a spare one (spares.py)."""
        source = self.source(program)
        folder = self.builds.use(program) if program else contextlib.nullcontext()
        with folder as cache:
            handle = self.handle(cache, source, is_trusted, is_new)
            try:
                yield handle
            finally:
                handle.end()

    def handle(
        self, cache: Path | None, source: Source, is_trusted: bool = False, is_new: bool = False
    ) -> RunnerHandle:
        """One whose process is still to come; whoever asks for it ends it."""
        scratch = Path(tempfile.mkdtemp(prefix="r", dir=self.scratch))
        return RunnerHandle(scratch, self, cache, source, is_trusted, is_new)

    def build_for(self, architecture: str | None, store: dict[str, Any] | None) -> None:
        """Runners compile for this architecture of a GPU alone, and what they build is kept in the
        store: `folder`, `max_bytes`. Not where a runner could write in another one's folder."""
        if architecture is not None:
            self.environment["TORCH_CUDA_ARCH_LIST"] = architecture
        if store is not None and is_granted(self.sandbox.get("landlock")):
            software = software_key(architecture)
            self.builds.keep_in(Path(store["folder"]), software, store["max_bytes"])

    def fork(
        self, scratch: Path, log: Path, checkouts: list[str], cache: Path | None, source: Source
    ) -> tuple[Process, Channel]:
        """A new runner's process, and the channel to it.

        Raises:
            SandboxError: It could not be confined as the first one was.
        """
        ours, theirs = socket.socketpair()
        message = {
            "op": "fork",
            "scratch": str(scratch),
            "log": str(log),
            "checkouts": checkouts,
            "cache": None if cache is None else str(cache),
            **self.settings(),
        }
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            with theirs, self.spent.over("fork"):
                reply, pidfds = source.ask(message, TEMPLATE_START_S, [theirs.fileno()])
            if "error" in reply:
                raise SandboxError(reply["error"])
            process = Process(reply["number"], pidfds[0])
            stack.pop_all()
        return process, Channel(ours)

    def settings(self) -> dict[str, Any]:
        """What is the same for all runners that are forked now."""
        return {
            "memory_bytes": self.memory_bytes,
            "cores": self.cores,
            "environment": dict(self.environment),
            "gpu": self.has_gpu,
        }

    def reap(self, process: Process, source: Source) -> int | None:
        """Kill a runner with all that it started and learn how it ended."""
        process.signal(signal.SIGKILL)
        with self.spent.over("reap"):
            reply, _ = source.ask({"op": "reap", "number": process.number}, REAP_S)
        status: int | None = reply["status"]
        return status

    def awake_s(self) -> float:
        """Seconds of a clock that stands still while the device is let go."""
        return time.monotonic() if self.turn is None else self.turn.awake_s()

    def stop(self) -> list[RunnerHandle]:
        """Stop all runners that run; none of them runs the text of its program then."""
        running = [one for one in tuple(self.alive) if not one.is_paused]
        for one in running:
            one.signal(signal.SIGSTOP)
        until_s = time.monotonic() + STOP_S
        while time.monotonic() < until_s and not all(one.has_stopped() for one in running):
            time.sleep(STOP_LOOK_S)
        return running

    def go_on(self, stopped: list[RunnerHandle]) -> None:
        for one in stopped:
            one.signal(signal.SIGCONT)

    def close(self) -> None:
        self.spares.close()
        if self.compiling is not None:
            self.compiling.channel.close()
        self.plain.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.builds.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Process:
    """A runner's process, by a descriptor that means nobody else when it is gone."""

    def __init__(self, number: int, pidfd: int):
        self.number = number
        """What its source calls it."""
        self.pidfd = pidfd
        words = Path(f"/proc/self/fdinfo/{pidfd}").read_text().split()
        self.group = int(words[words.index("Pid:") + 1])
        """Its number here, that of its process group too; 0 or less when it cannot be seen here."""

    def signal(self, number: signal.Signals) -> None:
        """To its process group, which nothing that it starts can leave. The number is not used
        again before the template has waited for it, which it does when the judge says so."""
        with contextlib.suppress(OSError):
            if self.group > 0:
                os.killpg(self.group, number)
            else:
                signal.pidfd_send_signal(self.pidfd, number)

    def pin(self, cores: Sequence[int]) -> None:
        """All of its threads to these processor cores, and those that they start."""
        with contextlib.suppress(OSError):  # ended, or not to be seen here
            for thread in Path(f"/proc/{self.group}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for its end for some time."""
        return bool(select.select([self.pidfd], [], [], timeout_s)[0])

    def has_stopped(self) -> bool:
        """Of its first process, which its threads and children are stopped with."""
        try:
            stat = Path(f"/proc/{self.group}/stat").read_text(errors="replace")
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] in STOPPED

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class RunnerHandle:
    """What the judge may ask of one runner."""

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
        self.facts: dict[str, Any] = {}
        self.segments: dict[str, AnySegment] = {}
        self.outgrown: list[AnySegment] = []
        self.shared: list[tuple[dict[str, Any], list[int]]] = []
        """What it is told first, such as of memory that was shared before there was a process."""
        self.last_words = ""
        self.is_paused = False
        self.spin_s = 0.0
        """How long its answer is looked for without a pause,"""
        self.doze_s = 0.0
        """after this time, in which it is not expected."""

    def start(self, checkouts: list[str], timeout_s: float, device: str | None = None) -> Channel:
        """Fork it, unless that is done, and tell it of the memory that was shared before. One that
        is to load a program on a `device` may have been forked for it.

        Raises:
            RunnerFailure: It ended, or could not take the memory.
            SandboxError: It could not be confined.
        """
        if self.channel is not None:
            return self.channel
        if self.ended:
            raise self.failure("died", "the process ended")
        spare = None
        is_plain = self.source is self.template.plain and not self.is_new
        if device is not None and not checkouts and is_plain:
            spare = self.template.spares.take(self.cache, device)
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
        """Go on with the process of another one, which knows no program yet."""
        assert other.channel is not None
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch, self.log_path, self.cache = other.scratch, other.log_path, other.cache
        self.process = other.process
        self.template.alive.discard(other)
        self.template.alive.add(self)
        self.shared.insert(0, ({"op": "settle_in", "cache": str(self.cache)}, []))
        return other.channel

    def ask(self, op: str, timeout_s: float, **message: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            RunnerFailure: The program raised, the runner died, or it did not answer in time.
        """
        root = (message.get("program") or {}).get("root")
        checkouts = [] if root is None else [root]
        channel = self.start(checkouts, timeout_s, message.get("device"))
        self.resume()
        try:
            reply = self.exchange(channel, {"op": op, **message}, [], timeout_s)
        except ChannelTimeout:
            self.end()
            raise self.failure("timeout", f"no answer to `{op}` within {timeout_s:.0f} s") from None
        except ChannelClosed:
            raise self.failure("died", self.death()) from None
        error = reply.get("error")
        try:
            if error is None:
                replies.check(op, reply)
                return reply
            replies.check("error", error)
        except replies.Malformed as malformed:
            self.end()
            text = f"its answer to `{op}` is none ({malformed})"
            raise self.failure("malformed", text) from None
        raise self.failure("raised", f"{error['type']}: {error['message']}", error)

    def share(
        self, name: str, accelerator: Accelerator, num_bytes: int, timeout_s: float
    ) -> AnySegment:
        """Memory that the judge and this runner both see, until the runner ends: a GPU's memory
        must outlive those who opened it. Of one name it is the same again where that is large
        enough.

        Raises:
            RunnerFailure: The runner could not take it.
        """
        before = self.segments.get(name)
        if before is not None and before.num_bytes >= num_bytes:
            return before
        if before is not None:
            self.outgrown.append(before)
        with self.template.spent.over("segment"):
            segment = self.segments[name] = accelerator.segment(num_bytes)
        words, descriptors = segment.address()
        message = {"op": "map", "segment": name, "num_bytes": segment.num_bytes, **words}
        if self.channel is None:
            self.shared.append((message, descriptors))
        else:
            self.resume()
            self.map(self.channel, message, descriptors, timeout_s)
        return segment

    def map(
        self, channel: Channel, message: dict[str, Any], descriptors: list[int], timeout_s: float
    ) -> None:
        """Tell the process of a place or of memory. Raises RunnerFailure."""
        try:
            reply = self.exchange(channel, message, descriptors, timeout_s)
        except ChannelTimeout:
            raise self.failure("timeout", f"no answer to `{message['op']}`") from None
        except ChannelClosed:
            raise self.failure("died", self.death()) from None
        if "error" in reply:
            said = str(reply["error"])[:500]
            raise self.failure("raised", f"it could not take what it was given: {said}")

    def failure(
        self, kind: str, message: str, error: dict[str, Any] | None = None
    ) -> RunnerFailure:
        """What became of this runner, with the traceback of its error or the last that it said."""
        log = self.log() if error is None else str(error["traceback"])
        return RunnerFailure(kind, message, error, log, self.is_trusted)

    def exchange(
        self, channel: Channel, message: dict[str, Any], descriptors: list[int], timeout_s: float
    ) -> dict[str, Any]:
        """Send and receive; descriptors that come back are not wanted, and would pile up."""
        with self.template.spent.over(message["op"]):
            channel.send(message, descriptors)
            reply, unwanted = self.receive(channel, timeout_s)
        for fd in unwanted:
            os.close(fd)
        return reply

    def receive(self, channel: Channel, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """Its answer. Who wants to time meanwhile is given way to, and that time does not count."""
        turn = self.template.turn
        if turn is None:
            return channel.receive(timeout_s, self.spin_s, self.doze_s)
        until_s = turn.awake_s() + timeout_s
        while not channel.has_more(LOOK_S):
            turn.look()
            if turn.awake_s() > until_s:
                raise ChannelTimeout("no answer in time")
        return channel.receive(max(LOOK_S, until_s - turn.awake_s()))

    def pin(self, cores: Sequence[int]) -> None:
        """Leave it these processor cores alone, with all threads that it has."""
        if self.process is not None and not self.ended:
            self.process.pin(cores)

    def pause(self) -> None:
        """Stop all of its threads and children; what a runner does not do it cannot do ahead of
        time."""
        self.is_paused = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False
        self.signal(signal.SIGCONT)

    def has_stopped(self) -> bool:
        """Whether it does not run, as far as can be seen from here."""
        return self.process is None or self.ended or self.process.has_stopped()

    def signal(self, number: signal.Signals) -> None:
        """A runner that is gone is noticed when it is asked."""
        if self.process is not None and not self.ended:
            self.process.signal(number)

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
        if self.process is None:
            return None
        self.ended = True
        self.process.has_ended(DEATH_S)
        return self.template.reap(self.process, self.source)

    def log(self) -> str:
        """The last that the program printed."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(-min(MAX_LOG_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
                text = log.read(MAX_LOG_BYTES)
        except OSError:
            return self.last_words
        return text.decode(errors="replace")

    def kill(self) -> None:
        """Begin its end, which `end` waits for, so that several end side by side."""
        self.signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill it and forget it; its log can still be asked for."""
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
            for segment in (*self.segments.values(), *self.outgrown):
                segment.close()
            self.segments, self.outgrown = {}, []
            self.last_words = self.log()
            self.log_path.unlink(missing_ok=True)
            shutil.rmtree(self.scratch, ignore_errors=True)
