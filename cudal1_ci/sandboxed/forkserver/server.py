"""Fork runners from a warm process: torch is imported, no program was run.

A fork costs some milliseconds where an import costs seconds. No tensor operation may run here: a
thread pool that exists before a fork does not exist after it. Importing torch may start a thread.
So this process first enters the namespaces that runners share. It also tries the other layers of
the sandbox (confinement/) in a process that ends at once.

A runner leads a process group that none of its children can leave. It has a PID namespace of its
own where the kernel grants one. Both end as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .. import confinement
from ..builds import torch_compiler
from ..confinement import kernel, landlock
from ..confinement.namespaces import Nursery, close_namespace, limit_resources
from ..wire.channel import Channel, ChannelClosed
from ..wire.template import (
    REQUEST,
    Branch,
    Done,
    Fork,
    NotForked,
    Ready,
    Reap,
    Reaped,
    SeeGpu,
    SeenGpu,
    Warm,
    Warmed,
)
from ..wire.template import Forked as ForkedRunner

READY = b"ready"
MAX_READY_BYTES = 65536
FIRST_HIGH_FD = 64
DRIVER_COUNT = "_cuda_getDeviceCount"
"""Function of torch._C, in builds with CUDA."""
CHANNEL_FD = 3
"""The only descriptor of a runner besides stdin, stdout and stderr."""


@dataclass(frozen=True)
class Forked:
    """A child, and a descriptor of the first process of its PID namespace."""

    pid: int
    keeper: int | None


def main(channel: Channel, num_threads: int) -> None:
    """Fork, warm up and reap at the verifier's requests, until it is gone."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    granted = confinement.enter()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    nursery = nursery_for(granted)
    other = Nursery() if nursery else None  # started while this process is small
    # Not earlier: entering a namespace needs a process that can be inspected.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    granted = probe(granted, nursery)
    channel.send(Ready(sandbox=granted))
    import torch

    from ..runner import runner  # noqa: F401 - so that a fork finds it imported

    torch.set_num_threads(num_threads)
    torch.set_num_interop_threads(1)
    serve(channel, granted, nursery, other)


def serve(
    channel: Channel, granted: confinement.Granted, nursery: Nursery | None, other: Nursery | None
) -> None:
    """Answer requests to this process, or to its `branch`, which has the `other` nursery."""
    runners: dict[int, Forked] = {}
    while True:
        try:
            request, fds = channel.receive(REQUEST)
        except ChannelClosed:
            for forked in runners.values():
                end(forked)
            return
        match request:
            case Fork():
                reply = fork_runner(channel, fds[0], request, granted, nursery, runners)
                # A descriptor of a process is the same in all PID namespaces, its number is not.
                pidfds = [os.pidfd_open(reply.number)] if isinstance(reply, ForkedRunner) else []
                keeper = runners[reply.number].keeper if isinstance(reply, ForkedRunner) else None
                channel.send(reply, pidfds + ([] if keeper is None else [keeper]))
                for pidfd in pidfds:
                    os.close(pidfd)
            case Branch():
                branch(channel, fds[0], granted, other, runners)
                channel.send(Done())
            case SeeGpu():
                channel.send(SeenGpu(seen=see_gpu(request, granted, nursery)))
            case Warm():
                channel.send(Warmed(num_imported=warm(request.modules)))
            case Reap():
                channel.send(Reaped(status=end(runners.pop(request.number, None))))


def branch(
    channel: Channel,
    fd: int,
    granted: confinement.Granted,
    nursery: Nursery | None,
    runners: dict[int, Forked],
) -> None:
    """Start another process like this one, which answers over `fd`. Runners forked from it find
    imports that others must not find."""
    gc.freeze()
    if os.fork() == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            channel.close()
            for forked in runners.values():
                if forked.keeper is not None:
                    os.close(forked.keeper)
            serve(Channel(socket.socket(fileno=fd)), granted, nursery, None)
        finally:
            os._exit(0)
    os.close(fd)


def warm(modules: Sequence[str]) -> int:
    """Import what runners imported from outside the checkout, so that later ones find it done. A
    module that cannot be imported separately is left to the runner."""
    count = 0
    with unasked_driver():
        for name in modules:
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    if is_installed(name.partition(".")[0]):
                        importlib.import_module(name)
                        count += 1
    return count


@contextlib.contextmanager
def unasked_driver() -> Iterator[None]:
    """Answer modules that count GPUs at import, as `torch.utils.cpp_extension` does, from this
    process's own settings. After a call to the driver torch refuses to use it in a fork."""
    import torch

    if not hasattr(torch._C, DRIVER_COUNT):
        yield
        return
    own = getattr(torch._C, DRIVER_COUNT)
    given = len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one])
    setattr(torch._C, DRIVER_COUNT, lambda: given)
    try:
        yield
    finally:
        setattr(torch._C, DRIVER_COUNT, own)


PACKAGES = ("site-packages", "dist-packages")
"""Names of folders of packages: the environment's, its base's, the user's, Debian's."""


def is_installed(name: str) -> bool:
    """Return whether a module is part of the interpreter or of its packages. A runner names what
    to import, and this process is less confined: code of an editable checkout must not run here."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    found = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    places = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib")]
    places += [one for one in sys.path if Path(one).name in PACKAGES]
    real = [os.path.realpath(place) + os.sep for place in places]
    return bool(found) and os.path.realpath(found[0]).startswith(tuple(real))


def nursery_for(granted: confinement.Granted) -> Nursery | None:
    """Return the source of runners' PID namespaces; record why there is none."""
    if not confinement.is_granted(granted["pid_namespace"]):
        return None
    try:
        nursery = Nursery()
        with nursery.namespace() as keeper:
            pass
        close_namespace(keeper)
    except OSError as error:
        granted["pid_namespace"] = f"refused: {error}"
        return None
    return nursery


def probe(granted: confinement.Granted, nursery: Nursery | None) -> confinement.Granted:
    """Try every layer of a runner in a process that then ends."""

    def attempt(scratch: Path, report: int) -> None:
        found = confinement.confine(confinement.Place(scratch=scratch), granted, strict=False)
        os.write(report, json.dumps(found).encode())

    answer = tried(attempt, nursery)
    try:
        found: confinement.Granted = json.loads(answer)
    except ValueError:
        raise confinement.SandboxError(f"the sandbox could not be tried: {answer!r}") from None
    return found


def tried(attempt: Callable[[Path, int], None], nursery: Nursery | None) -> bytes:
    """Return what a child reports that has a folder and then ends."""
    scratch = Path(tempfile.mkdtemp(prefix="probe-", dir=Path.home()))
    try:
        forked, answer = fork(lambda report: attempt(scratch, report), nursery)
        end(forked)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return answer


def see_gpu(request: SeeGpu, granted: confinement.Granted, nursery: Nursery | None) -> bool | str:
    """Return whether CUDA works for a runner that may open the files of one GPU only, or why
    not."""

    def attempt(scratch: Path, report: int) -> None:
        place = confinement.Place(scratch=scratch, hidden=request.hidden)
        os.environ.update(confinement.gpus.FIRST)
        confinement.confine(place, granted, strict=True)
        confinement.gpus.see_only(request.uuid)
        os.write(report, READY)

    try:
        answer = tried(attempt, nursery)
    except OSError as error:
        answer = str(error).encode()
    return answer == READY or f"refused: {answer.decode(errors='replace') or 'the process ended'}"


def fork_runner(
    channel: Channel,
    fd: int,
    request: Fork,
    granted: confinement.Granted,
    nursery: Nursery | None,
    runners: dict[int, Forked],
) -> ForkedRunner | NotForked:
    """Start a runner that talks over `fd`. The reply names its process, or says why there is
    none."""

    settings = request.settings

    def begin(report: int) -> None:
        channel.close()
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        keep_descriptors(log, fd, report)
        place = confinement.Place(
            scratch=Path(request.scratch),
            checkouts=request.checkouts,
            cache=request.cache,
            gpu=settings.has_gpu,
            hidden=settings.hidden,
        )
        os.environ.update(settings.environment)
        limit_resources(settings.memory_bytes)
        if settings.cores is not None:
            os.sched_setaffinity(0, settings.cores)
        confinement.confine(place, granted, strict=True)
        # A thread of a process that cannot be inspected cannot even be named by itself.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        confinement.move_in(place)
        torch_compiler.settle_in()
        from ..runner import runner

        os.write(report, READY)
        os.close(report)
        runner.main(Channel(socket.socket(fileno=CHANNEL_FD)), place.scratch)

    landlock.readable(tuple(sys.path))  # found here once; a fork keeps it
    try:
        forked, answer = fork(begin, nursery)
    except OSError as error:
        return NotForked(why=f"a runner cannot be forked: {error}")
    finally:
        os.close(fd)
    if answer != READY:
        end(forked)
        said = answer.decode(errors="replace") or "the process ended"
        return NotForked(why=f"a runner cannot be confined: {said}")
    runners[forked.pid] = forked
    return ForkedRunner(number=forked.pid)


def fork(body: Callable[[int], None], nursery: Nursery | None) -> tuple[Forked, bytes]:
    """Run `body` in a child, and wait for what the child writes to its descriptor."""
    with nursery.namespace() if nursery else contextlib.nullcontext() as keeper:
        heard, low = os.pipe()
        report = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_FD)
        os.close(low)
        # What exists here is not garbage. A collection in the fork would visit all of it and so
        # copy each of its pages: a tenth of a second.
        gc.freeze()
        try:
            pid = os.fork()
        except OSError:
            os.close(heard)
            os.close(report)
            raise
        if pid == 0:
            live(body, report)
    os.close(report)
    answer = b""
    while part := os.read(heard, MAX_READY_BYTES):
        answer += part
    os.close(heard)
    return Forked(pid, keeper), answer


def live(body: Callable[[int], None], report: int) -> NoReturn:
    """Run a child. Its failure is written where its parent waits for its readiness."""
    code = 1
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        body(report)
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the reason
        with contextlib.suppress(OSError):  # closed, or the process was ready before
            os.write(report, f"{type(error).__name__}: {error}".encode()[:MAX_READY_BYTES])
    finally:
        os._exit(code)


def keep_descriptors(log: int, fd: int, report: int) -> None:
    """Close all other descriptors: stdin is empty, stdout and stderr are the log."""
    null = os.open(os.devnull, os.O_RDONLY)
    # First they move away from their final numbers, so that none overwrites another.
    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_FD) for one in (null, log, log, fd)]
    for number, one in enumerate(high):
        os.dup2(one, number, inheritable=number != CHANNEL_FD)
    os.closerange(CHANNEL_FD + 1, report)
    os.closerange(report + 1, os.sysconf("SC_OPEN_MAX"))


def end(forked: Forked | None) -> int | None:
    """Kill a runner with all that it left behind; return its wait status."""
    if forked is None:
        return None
    status = None
    with contextlib.suppress(ChildProcessError):
        # A process that has ended keeps its status, and the group its number, until the wait.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(forked.pid, signal.SIGKILL)
        _, status = os.waitpid(forked.pid, 0)
        while True:  # what it left behind and this process adopted
            os.waitpid(-forked.pid, 0)
    if forked.keeper is not None:
        close_namespace(forked.keeper)
    return status
