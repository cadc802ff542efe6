"""Control the warm process that the verifier forks its runners from. handles.py is one runner."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..builds.build_keys import software_key
from ..builds.folders import Builds
from ..builds.torch_compiler import modules_for
from ..confinement import Granted, SandboxError, gpus, is_granted
from ..timing.giving_way import Turn
from ..timing.wait_times import Spent
from ..wire.channel import Channel, ChannelClosed, ChannelTimeout
from ..wire.codec import Asks, answers_to, decode
from ..wire.programs import Program
from ..wire.template import (
    READY,
    Branch,
    Fork,
    ForkSettings,
    NotForked,
    Reap,
    SeeGpu,
    Warm,
)
from ..wire.verifier import Store
from .handles import Process, RunnerHandle, process_id
from .spare_runners import Spares

R = TypeVar("R")
TEMPLATE_START_S = 120.0
"""Importing torch from a cold disk took up to 40 s. Three times that is broken, not slow."""
STOP_S, STOP_LOOK_S = 0.2, 0.002
"""Seconds for the system call that a stopping process may be in."""
END_S = 10.0
REAP_S = 30.0
"""Seconds. The kernel frees the memory of a thousand processes in less."""


class Source:
    """A process that runners are forked from. It answers one request at a time, for runners
    opened in parallel."""

    def __init__(self, template: Template, channel: Channel, known: Iterable[str] = ()):
        self.template = template
        self.channel = channel
        self.known = set(known)
        """Modules that it was sent."""
        self.lock = threading.Lock()
        self.spares = Spares(template, self)

    def ask(
        self,
        request: Asks[R],
        timeout_s: float,
        descriptors: Sequence[int] = (),
        turn: Turn | None = None,
    ) -> tuple[R, list[int]]:
        """Return the answer to a request. Within a `turn`, yield the device to processes that
        time."""
        with self.lock:
            self.channel.send(request, descriptors)
            if turn is None:
                return self.channel.receive(answers_to(request), timeout_s)
            body, fds = turn.receive(self.channel, timeout_s)
        return decode(answers_to(request), body), fds

    def warm(self, modules: Iterable[str]) -> None:
        """Import modules that were not sent before. It takes seconds of a processor and no time
        of the device, so it continues while others time."""
        fresh = [name for name in modules if name not in self.known]
        self.known.update(fresh)
        if fresh:
            with contextlib.suppress(ChannelTimeout):
                request = Warm(modules=tuple(fresh))
                reply, _ = self.ask(request, TEMPLATE_START_S, turn=self.template.turn)
                if reply.num_imported:
                    self.spares.renew()


class Template:
    """The warm process and its forks.

    Raises:
        SandboxError: It ended before it could report what it is allowed to do here.
    """

    def __init__(self, pid: int, channel: Channel, memory_bytes: int | None):
        self.pid = pid
        """Its process ID, as a child of this process."""
        self.device: str | None = None
        """`cuda` where a process is slow to start and one is started ahead; None for no such
        device."""
        self.plain = Source(self, channel)
        self.compiling: Source | None = None
        """Process for programs that use torch.compile, once there is one."""
        self.memory_bytes = memory_bytes
        self.cores: Sequence[int] | None = None
        """Cores for runners. A program with more threads than the reference gets no more cores."""
        # Inside the folder that the host made and removes.
        self.scratch = Path(tempfile.mkdtemp(prefix="runners-", dir=Path.home()))
        self.builds = Builds(self.scratch / "builds")
        self.keeps_environment = False
        """Whether the reference changes no environment variable when it is loaded."""
        self.environment: dict[str, str] = {}
        """Variables of runners besides those of the template."""
        self.has_gpu = True
        """Whether runners may open the devices of a GPU."""
        self.hidden: tuple[str, ...] = ()
        """Devices of other GPUs, which they may not open."""
        self.spent = Spent()
        self.branching = threading.Lock()
        self.turn: Turn | None = None
        """Hold on the device for the current request; None where it yields to no process."""
        self.alive: set[RunnerHandle] = set()
        """Runners that have a process."""
        try:
            ready, _ = channel.receive(READY, TEMPLATE_START_S)
        except (ChannelClosed, ChannelTimeout) as error:
            raise SandboxError(f"the template could not be started: {error}") from error
        self.sandbox: Granted = ready.sandbox
        """By layer: True, or the version of an interface, or why the kernel refused it."""

    def warm(self, modules: Iterable[str]) -> None:
        """Import in the template what a runner had to import, once."""
        modules = tuple(modules)
        for source in self.sources():
            source.warm(modules)

    def source(self, program: Program | None) -> Source:
        """Return the process that runners of a program are forked from. The first program with
        torch.compile starts a second process for such programs."""
        modules = modules_for(program, self.keeps_environment) if program else ()
        if not modules:
            return self.plain
        with self.branching:
            if self.compiling is None:
                ours, theirs = socket.socketpair()
                with theirs:
                    self.plain.ask(Branch(), TEMPLATE_START_S, [theirs.fileno()])
                self.compiling = Source(self, Channel(ours), self.plain.known)
            with self.spent.over("warm"):
                self.compiling.warm(modules)
        return self.compiling

    @contextlib.contextmanager
    def runner(
        self,
        program: Program | None = None,
        is_trusted: bool = False,
        is_new: bool = False,
    ) -> Iterator[RunnerHandle]:
        """Yield a new runner, killed at the end with all that it started.

        It is forked at its first request, which says what it needs; what it may read is fixed then.
        It does not know whether it is trusted, but its failures report it. A program's builds
        outlive the runner, for the same program only: a program that writes there chooses what the
        next one finds. Unless it must be new (`is_new`), it may be a spare one (spare_runners.py).
        """
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
        """Return a handle whose process is still to be started. The caller ends it."""
        scratch = Path(tempfile.mkdtemp(prefix="r", dir=self.scratch))
        return RunnerHandle(scratch, self, cache, source, is_trusted, is_new)

    def build_for(self, architecture: str | None, store: Store | None) -> None:
        """Let runners compile for this GPU architecture only, and keep their builds in the
        store. This does nothing where a runner could write in another one's folder."""
        if architecture is not None:
            self.environment["TORCH_CUDA_ARCH_LIST"] = architecture
        if store is not None and is_granted(self.sandbox.get("landlock")):
            software = software_key(architecture)
            self.builds.keep_in(Path(store.folder), software, store.max_bytes)

    def fork(
        self,
        scratch: Path,
        log: Path,
        checkouts: Sequence[str],
        cache: Path | None,
        source: Source,
    ) -> tuple[Process, Channel]:
        """Fork a runner. Return its process, and the channel to it.

        Raises:
            SandboxError: It could not be confined as the first one was.
        """
        ours, theirs = socket.socketpair()
        request = Fork(
            scratch=str(scratch),
            log=str(log),
            checkouts=tuple(checkouts),
            cache=None if cache is None else str(cache),
            settings=self.settings(),
        )
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            with theirs, self.spent.over("fork"):
                reply, pidfds = source.ask(request, TEMPLATE_START_S, [theirs.fileno()])
            if isinstance(reply, NotForked):
                raise SandboxError(reply.why)
            keeper = None
            for keeper_fd in pidfds[1:]:
                keeper = process_id(keeper_fd)
                os.close(keeper_fd)
            process = Process(reply.number, pidfds[0], keeper)
            stack.pop_all()
        return process, Channel(ours)

    def settings(self) -> ForkSettings:
        """Return the settings of all runners that are forked now."""
        return ForkSettings(
            memory_bytes=self.memory_bytes,
            cores=None if self.cores is None else tuple(self.cores),
            environment=dict(self.environment),
            has_gpu=self.has_gpu,
            hidden=self.hidden,
        )

    def keep_to(self, uuid: str) -> None:
        """Restrict runners to this GPU on a machine of several. Where the kernel or CUDA does
        not support it, runners have all GPUs, and the layer is reported missing."""
        others = gpus.others_than(uuid)
        if not others:
            return
        seen: bool | str = "refused: needs landlock"
        if is_granted(self.sandbox.get("landlock")):
            request = SeeGpu(uuid=uuid, hidden=tuple(others))
            seen = self.plain.ask(request, TEMPLATE_START_S)[0].seen
        self.sandbox["own_gpu"] = seen
        if is_granted(seen):
            self.hidden = others
            self.environment.update(gpus.FIRST)

    def reap(self, process: Process, source: Source) -> int | None:
        """Kill a runner with all that it started, and return how it ended."""
        process.signal(signal.SIGKILL)
        with self.spent.over("reap"):
            reply, _ = source.ask(Reap(number=process.number), REAP_S)
        return reply.status

    def awake_s(self) -> float:
        """Return seconds of a clock that stops while the device is released."""
        return time.monotonic() if self.turn is None else self.turn.awake_s()

    def stop(self) -> list[RunnerHandle]:
        """Stop all running runners, so that none executes its program."""
        running = [one for one in tuple(self.alive) if not one.is_paused]
        for one in running:
            one.signal(signal.SIGSTOP)
        until_s = time.monotonic() + STOP_S
        while time.monotonic() < until_s and not all(one.has_stopped() for one in running):
            time.sleep(STOP_LOOK_S)
        return running

    def go_on(self, stopped: list[RunnerHandle]) -> None:
        """Resume what `stop` has stopped, but for those that another thread has paused since."""
        for one in stopped:
            one.signal(signal.SIGCONT)
            if one.is_paused:
                one.signal(signal.SIGSTOP)

    def sources(self) -> list[Source]:
        return [one for one in (self.compiling, self.plain) if one is not None]

    def settle(self) -> None:
        """Wait until no process is being started ahead."""
        for source in self.sources():
            source.spares.settle()

    def close(self) -> None:
        for source in self.sources():
            source.spares.close()
        for source in self.sources():
            source.channel.close()
        pidfd = os.pidfd_open(self.pid)
        select.select([pidfd], [], [], END_S)
        os.close(pidfd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.builds.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
