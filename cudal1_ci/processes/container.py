"""Workers in containers of Docker or Podman.

The whole worker, judge and runners, runs in one container: no network, a root file system that
cannot be written, the project's interpreter and checkouts to be read at the paths that they have
outside, one GPU, limits of memory and processes. Runners are confined inside of it as they are
without it; what the kernel does not grant there is reported as ever. The container bounds the judge
too, and all runners together; it shares the kernel and the driver. docs/security.md weighs it.

The worker comes to a socket in a private folder. No descriptor passes through an engine, and its
streams would make what is printed a channel. The folder is removed once the worker has come. How
the host ends does not matter: the socket closes, the container's first process ends
(sandboxed/confinement/contained.py), and the engine removes the container.

Covered: engines on this machine. Not covered: a daemon on another one, or in a virtual machine,
which sees other files and another kernel's sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import secrets
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cudal1_ci.errors import CudaL1Error, UnsupportedError, WorkerError
from cudal1_ci.processes.conversation import Conversation
from cudal1_ci.processes.engine import Engine, EngineName, find_engine
from cudal1_ci.processes.gpus import gpu_uuid
from cudal1_ci.processes.local import BOOTSTRAP, MAX_LOG_CHARS, SANDBOXED, scrubbed_environment
from cudal1_ci.processes.mounts import Mount, interpreter, mounts_of
from cudal1_ci.records import Record

INSIDE = Path("/cudal1-ci")
CHANNEL = INSIDE / "channel"
"""The private folder, with the socket."""
SCRATCH = INSIDE / "scratch"
"""The only place that can be written, in memory."""
SOCKET = "socket"

MAX_SCRATCH_BYTES = 4 * 2**30
"""What all programs of a session compile; a runner has 1 GiB of its own."""
MAX_SHM_BYTES = 2**30
MAX_PIDS = 8192
"""Of the judge, the template and a trial's runners: each of these may have 1,024."""
MEMORY_SHARE = 0.8
"""Of the machine's: what takes more is ended, and not a neighbor of the container."""
MAX_OPEN_FILES = 65536
MAX_PROCESSES_OF_USER = 32768

START_S = 180.0
"""To the worker's first word. An image's layers and torch may come from a cold disk."""
REMOVAL_S = 10.0

PROFILE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [
        {
            "action": "SCMP_ACT_ERRNO",
            "names": [
                *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
                *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
                *("io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init"),
                *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp"),
                *("open_by_handle_at", "name_to_handle_at", "pidfd_getfd", "lookup_dcookie"),
                *("umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen"),
                *("fsconfig", "fsmount", "fspick", "mount_setattr", "quotactl", "quotactl_fd"),
                *("reboot", "swapon", "swapoff", "sethostname", "setdomainname", "acct", "syslog"),
                *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "vhangup"),
                *("modify_ldt", "iopl", "ioperm", "uselib", "ustat", "sysfs", "nfsservctl"),
            ],
        }
    ],
}
"""System calls that no process of a container needs. The engines' own profiles forbid the
namespaces as well with which the judge confines runners, who are then denied more than this."""

HINTS = (
    (
        r"could not select device driver|nvidia\.com/gpu|nvidia-container|libnvidia-ml|CDI",
        "the engine cannot give a container a GPU: install the NVIDIA Container Toolkit (docker: "
        "`nvidia-ctk runtime configure`; podman: `nvidia-ctk cdi generate "
        '--output=/etc/cdi/nvidia.yaml`), or use `device = "cpu"`',
    ),
    (
        r"GLIBC(XX)?_[\d.]+.* not found|cannot open shared object|no such file or directory"
        r"|executable file|open executable|exec format error",
        "`container-image`: the interpreter does not run in this image; name one with the base "
        "system that it was built for (glibc, libssl, libffi: that of this machine), or one that "
        "has a Python with torch (`container-python`)",
    ),
)
"""How to mend what the log says."""
NO_TORCH = "No module named 'torch'"


class ContainerConfig(Record, frozen=True, kw_only=True):
    """Which container a worker runs in."""

    image: str | None = None
    """An image that is on this machine: the base system, or one whose own Python has torch."""
    engine: EngineName | None = None
    """None is the first one that works."""
    python: str | None = None
    """Interpreter of the image; None is the project's, from this machine."""


def engine_and_image(config: ContainerConfig) -> tuple[Engine, str]:
    """The engine that answers, and the digest of the image that is configured.

    Raises:
        UnsupportedError: No image is configured, or one of the two is not here.
    """
    if config.image is None:
        raise UnsupportedError(
            "`container-image`: the container executor needs an image that is on this machine, "
            'such as `container-image = "debian:bookworm-slim"` (--container-image)'
        )
    engine = find_engine(config.engine)
    return engine, engine.image_id(config.image)


@dataclass(frozen=True)
class Container:
    """Starts workers in containers."""

    config: ContainerConfig
    python: str
    """Interpreter of this machine, for an image that has none of its own."""
    checkouts: tuple[Path, ...] = field(default=())
    """What programs are read from."""
    has_disk = False

    def start(self, role: str, *, num_threads: int, device: str) -> ContainedWorker:
        """A worker that runs inside of a `with`."""
        return ContainedWorker(role, self, num_threads=num_threads, device=device)


class ContainedWorker:
    """One worker and its container, which ends with the `with` or with this process."""

    def __init__(self, role: str, container: Container, *, num_threads: int, device: str):
        self.role = role
        self.container = container
        self.num_threads = num_threads
        self.device = device
        self.name = f"cudal1-ci-{secrets.token_hex(8)}"
        self.software: dict[str, str] = {}
        """The engine and the image."""
        self.pid = 0
        """Of the container's first process, as this machine counts."""

    def __enter__(self) -> Self:
        config = self.container.config
        self.engine, image_id = engine_and_image(config)
        self.software = {
            "container": f"{config.image} sha256:{image_id}",
            "container_engine": f"{self.engine.kind} {self.engine.version}",
        }
        # Nothing names it, so nothing has to remove it.
        self.log = tempfile.TemporaryFile()
        try:
            self.conversation = Conversation(self._started(image_id), self.role, self._ending)
        except BaseException:
            self.log.close()
            raise
        return self

    def _started(self, image_id: str) -> socket.socket:
        """Start the container and wait for its worker; the private folder is gone afterwards."""
        with (
            tempfile.TemporaryDirectory(prefix="cudal1-ci-") as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        ):
            private = Path(folder)
            bind(listener, private)
            command = [self.engine.path, *self._arguments(private, image_id)]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,
            )
            try:
                end = self._accepted(listener)
            except BaseException:
                self._remove()
                raise
        self.pid = peer_pid(end)
        return end

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """The worker's end of the conversation.

        Raises:
            CudaL1Error: The container ended before, or nothing came in time.
        """
        deadline = time.monotonic() + START_S
        ended = os.pidfd_open(self.process.pid)
        try:
            while time.monotonic() < deadline:
                ready, _, _ = select.select([listener.fileno(), ended], [], [], 1.0)
                if listener.fileno() in ready:
                    return listener.accept()[0]
                if ended in ready:
                    raise self._refusal()
        finally:
            os.close(ended)
        raise WorkerError(
            f"{self.engine.kind} started no worker within {START_S:.0f} s" + self._tail_text()
        )

    def _arguments(self, private: Path, image_id: str) -> list[str]:
        """The engine's command line, and what it leaves in the private folder for the start."""
        engine = self.engine
        profile = private / "seccomp.json"
        profile.write_text(json.dumps(PROFILE), encoding="utf-8")
        empty = private / "empty"
        (empty / "folder").mkdir(parents=True)
        (empty / "file").touch()
        shared = private / "channel"
        uuid = gpu_uuid(self.device, os.environ)
        python, mounts = self._python_and_mounts(empty)
        mounts = [Mount(source=shared, target=CHANNEL), *mounts]
        environment = environment_inside(os.environ, self.num_threads, uuid, engine.kind)
        device = "cuda" if uuid is not None else self.device.partition(":")[0]
        memory = str(int(machine_memory_bytes() * MEMORY_SHARE))
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
        return [
            *("run", "--rm", "--pull=never", "--name", self.name, "--log-driver=none"),
            *("--network=none", "--ipc=private", "--read-only", "--no-healthcheck"),
            *("--cap-drop=ALL", *(["--cap-add=SETFCAP"] if engine.runs_as_root_inside else [])),
            *("--security-opt", "no-new-privileges", "--security-opt", f"seccomp={profile}"),
            *("--security-opt", "apparmor=unconfined", "--security-opt", "label=disable"),
            *([] if os.geteuid() == 0 else engine.unmask_arguments),
            *(f"--pids-limit={MAX_PIDS}", f"--memory={memory}", f"--memory-swap={memory}"),
            *("--ulimit", "core=0:0"),
            *("--ulimit", limit("nofile", files, MAX_OPEN_FILES)),
            *("--ulimit", limit("nproc", processes, MAX_PROCESSES_OF_USER)),
            f"--shm-size={MAX_SHM_BYTES}",
            *("--tmpfs", f"{SCRATCH}:rw,exec,nosuid,nodev,size={MAX_SCRATCH_BYTES},mode=1777"),
            *engine.user_arguments(),
            *engine.own_arguments,
            *([] if uuid is None else engine.gpu_arguments(uuid)),
            *(word for mount in mounts for word in mount.arguments),
            *(word for item in environment.items() for word in ("--env", "=".join(item))),
            *("--workdir", "/", "--entrypoint", python, image_id),
            *("-c", BOOTSTRAP, str(SANDBOXED), self.role, str(CHANNEL / SOCKET)),
            *(str(self.num_threads), device),
        ]

    def _python_and_mounts(self, empty: Path) -> tuple[str, list[Mount]]:
        """The interpreter inside of the container, and what is shown to it."""
        folders = [SANDBOXED]
        checkouts = [*self.container.checkouts]
        python = self.container.config.python
        if python is None:
            found = interpreter(self.container.python)
            folders += found.folders
            checkouts += found.checkouts
            python = str(found.executable)
        return python, mounts_of(folders, checkouts, empty)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.conversation.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REMOVAL_S)  # the container ends, and the engine removes it
        self._remove()
        self.log.close()

    def _remove(self) -> None:
        """Leave no container, and no process of the engine's command, whatever they wait for."""
        if self.process.poll() is None:
            with contextlib.suppress(CudaL1Error):
                self.engine.ask("rm", "--force", "--volumes", self.name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and wait for its reply. Raises WorkerError."""
        return self.conversation.ask(request, timeout_s)

    def _refusal(self) -> CudaL1Error:
        """Why there is no worker: the engine, the image or the interpreter."""
        code = self.process.wait()
        text = (
            f"{self.engine.kind} could not start a worker in `{self.container.config.image}` "
            f"(exit code {code})"
        )
        return UnsupportedError(text + self._tail_text() + self._hint())

    def _ending(self) -> str:
        """How the worker ended, with the last lines of its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REMOVAL_S)
        code = self.process.poll()
        return f"the {self.role} ended (exit code {code})" + self._tail_text() + self._hint()

    def _hint(self) -> str:
        log = self.log_tail()
        if NO_TORCH in log:
            inside = self.container.config.python
            if inside is None:
                return (
                    f"\ntorch is not installed in {self.container.python}: `pip install torch` "
                    "there, or use an image that has it (`container-python`)"
                )
            return (
                f"\n`container-python`: {inside} of the image has no torch; name an image whose "
                "Python has it, or leave the key out to use the project's own"
            )
        return next((f"\n{mend}" for sign, mend in HINTS if re.search(sign, log)), "")

    def _tail_text(self) -> str:
        return "".join(f"\n  {line}" for line in self.log_tail().strip().splitlines()[-4:])

    def log_tail(self) -> str:
        """The last that the engine and the worker printed."""
        size = os.fstat(self.log.fileno()).st_size
        tail = os.pread(self.log.fileno(), MAX_LOG_CHARS, max(0, size - MAX_LOG_CHARS))
        return tail.decode(errors="replace")


def bind(listener: socket.socket, private: Path) -> None:
    """Listen in a folder of its own inside of the private one. By way of a descriptor: a socket's
    path may have 107 bytes, which a temporary folder's can exceed."""
    folder = private / "channel"
    folder.mkdir()
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
        listener.listen(1)
    finally:
        os.close(descriptor)


def peer_pid(end: socket.socket) -> int:
    """The process that came to the socket, by its number on this machine."""
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def environment_inside(
    environ: Mapping[str, str], num_threads: int, uuid: str | None, engine: str
) -> dict[str, str]:
    """What a worker in a container may know of the host's environment: what one beside it may, but
    for places, which mean nothing there. Its own image says what PATH and CUDA_HOME are."""
    kept = scrubbed_environment(environ, SCRATCH, num_threads)
    kept = {name: value for name, value in kept.items() if "/" not in value}
    # An image may ask for all GPUs where the NVIDIA runtime is the default one.
    shown = uuid if uuid is not None and engine == "docker" else "void"
    return {
        **kept,
        "HOME": str(SCRATCH),
        "TMPDIR": str(SCRATCH),
        "USER": "cudal1-ci",  # there may be no such user in the image
        "CUDA_VISIBLE_DEVICES": "0",
        "NVIDIA_VISIBLE_DEVICES": shown,
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }


def limit(name: str, hard: int, most: int) -> str:
    """A limit of a resource as the engines read it. Never more than this process may have: an
    engine that runs as its child cannot give more, and its default may be more."""
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return f"{name}={value}:{value}"


def machine_memory_bytes() -> int:
    """All of this machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
