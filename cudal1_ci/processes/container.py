"""Start workers in containers of Docker or Podman, and talk to them over a socket.

The whole worker runs in one container. The container has no network and one GPU, and its memory and
its number of processes are limited. It can write only to a folder in memory. The checkouts are
read-only, at the paths that they have outside.
The image provides the interpreter and torch. Runners are confined inside the container as they are
without it. The worker reports what the kernel does not grant there. docs/security.md discusses the
consequences.

The worker connects to a socket in a private folder, because no descriptor passes through an engine.
When the host ends, the socket closes, the worker ends, and the engine removes the container.
Not covered: rootless Docker, and a daemon on another machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.processes.conversation import Conversation
from cudal1_ci.processes.gpus import gpu_uuid
from cudal1_ci.processes.local import BOOTSTRAP, MAX_LOG_CHARS, SANDBOXED, scrubbed_environment
from cudal1_ci.records import Record
from cudal1_ci.sandboxed.wire.codec import Asks

R = TypeVar("R")

CHANNEL = Path("/cudal1-ci/channel")
SCRATCH = Path("/cudal1-ci/scratch")
"""The only writable folder. It is in memory and holds what the programs of a session compile."""
MEMORY_SHARE = 0.8
"""Share of the machine's memory. A worker that takes more is ended, which protects other
processes."""
START_S = 180.0
"""Seconds until the worker connects. The image's layers and torch may come from a cold disk."""
ANSWER_S = 60.0
REMOVAL_S = 10.0


class ContainerConfig(Record, frozen=True, kw_only=True):
    """Describe the container that a worker runs in."""

    image: str | None = None
    """An image that is on this machine and whose Python has torch."""
    python: str = "python3"
    """The image's interpreter."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A working Podman or Docker, with the image."""

    path: str
    version: str
    """`podman 4.3.1`"""
    image_id: str
    """Digest of the image's configuration."""


def find_engine(config: ContainerConfig) -> Engine:
    """Return the first engine that has the image, podman before docker.

    Raises:
        UnsupportedError: No image is named, no engine works, or none has the image.
    """
    if config.image is None:
        raise UnsupportedError(
            "`container-image`: name an image that is on this machine and whose Python has torch "
            "(--container-image)"
        )
    said = "neither podman nor docker is installed here: `apt-get install podman`"
    for name in ("podman", "docker"):
        path = shutil.which(name)
        if path is None or not path.startswith("/"):  # PATH may name the folder that is verified
            continue
        words = re.search(r"(docker|podman) version v?([\w.+~-]+)", ask(path, "--version"), re.I)
        found = ask(path, "image", "inspect", "--format", "{{.Id}}", config.image)
        digest = re.search(r"\b[0-9a-f]{64}\b", found)
        if words and digest:
            version = f"{words[1].lower()} {words[2]}"
            return Engine(path=path, version=version, image_id=digest[0])
        said = f"{name}: {found.strip()} (none is pulled: `{name} pull {config.image}`)"
    raise UnsupportedError(f"`executor`: {said}; or verify without a container: --executor local")


def ask(path: str, *words: str) -> str:
    """Run a command of the engine to its end and return its output."""
    try:
        done = subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout


@dataclass(frozen=True)
class Container:
    """Start workers in containers."""

    config: ContainerConfig
    checkouts: tuple[Path, ...] = field(default=())
    """Folders that programs are read from."""
    has_disk = False

    def start(self, role: str, *, num_threads: int, device: str) -> ContainedWorker:
        """Return a worker that runs inside a `with`."""
        return ContainedWorker(role, self, num_threads=num_threads, device=device)


class ContainedWorker:
    """A worker and its container. The container ends with the `with` or with this process."""

    def __init__(self, role: str, container: Container, *, num_threads: int, device: str):
        self.role = role
        self.container = container
        self.num_threads = num_threads
        self.device = device
        self.name = f"cudal1-ci-{secrets.token_hex(8)}"
        self.software: dict[str, str] = {}
        """The engine and the image."""
        self.pid = 0
        """Process ID of the worker on this machine."""

    def __enter__(self) -> Self:
        config = self.container.config
        self.engine = find_engine(config)
        self.software = {
            "container": f"{config.image} sha256:{self.engine.image_id}",
            "container_engine": self.engine.version,
        }
        self.log = tempfile.TemporaryFile()
        with (
            tempfile.TemporaryDirectory(prefix="cudal1-ci-") as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        ):
            listener.bind(f"{folder}/socket")
            listener.listen(1)
            listener.settimeout(0.2)
            command = [self.engine.path, *self._arguments(Path(folder))]
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
        end.settimeout(None)
        credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid = struct.unpack("3i", credentials)[0]
        self.conversation = Conversation(end, self.role, self._ending)
        return self

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """Return the worker's end of the socket. Raises: UnsupportedError where the container
        has ended."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self.process.poll() is not None:
                raise UnsupportedError(f"`container-image`: {self._ending()}")
        raise WorkerError(f"no container came within {START_S:.0f} s{self._tail_text()}")

    def _arguments(self, private: Path) -> list[str]:
        """Return the engine's command line."""
        is_podman = self.engine.version.startswith("podman")
        uuid = gpu_uuid(self.device, os.environ)
        gpu = ["--device", f"nvidia.com/gpu={uuid}"] if is_podman else ["--gpus", f"device={uuid}"]
        memory = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE)
        environment = environment_inside(os.environ, self.num_threads)
        is_rootless = is_podman and os.geteuid() != 0
        # The engines' profiles forbid the namespaces that isolate runners from each other. Each
        # runner has its own list of system calls.
        unconfined = ["seccomp=unconfined", "apparmor=unconfined", "label=disable"]
        if os.geteuid() != 0:  # root may write to parts of /proc, so they stay covered
            unconfined.append("unmask=ALL" if is_podman else "systempaths=unconfined")
        mounts = [bound(private, CHANNEL), bound(SANDBOXED, SANDBOXED)]
        for checkout in self.container.checkouts:
            mounts += mounts_of(checkout.absolute())
        return [
            *("run", "--rm", "--init", "--pull=never", "--name", self.name, "--log-driver=none"),
            *("--network=none", "--read-only", "--cap-drop=ALL", "--pids-limit=8192"),
            *(f"--memory={memory}", f"--memory-swap={memory}", "--shm-size=1g"),
            *(word for it in ("no-new-privileges", *unconfined) for word in ("--security-opt", it)),
            *("--user", f"{os.geteuid()}:{os.getegid()}"),
            # Without this capability root gets no user namespace, which isolates runners from each
            # other.
            *(["--cap-add=SETFCAP"] if os.geteuid() == 0 else []),
            *(["--userns=keep-id"] if is_rootless else []),
            *(["--http-proxy=false"] if is_podman else []),
            *("--tmpfs", f"{SCRATCH}:rw,exec,nosuid,nodev,size=4g,mode=1777"),
            *([] if uuid is None else gpu),
            *(word for mount in mounts for word in ("--mount", mount)),
            *(word for item in environment.items() for word in ("--env", "=".join(item))),
            *("--workdir", "/", "--entrypoint", self.container.config.python),
            *(self.engine.image_id, "-c", BOOTSTRAP, str(SANDBOXED), self.role),
            *(str(CHANNEL / "socket"), str(self.num_threads)),
            self.device.partition(":")[0] if uuid is None else "cuda",
        ]

    def __exit__(self, *_: object) -> None:
        self.conversation.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REMOVAL_S)
        self._remove()

    def _remove(self) -> None:
        """Remove the container and the process of the engine's command."""
        if self.process.poll() is None:
            ask(self.engine.path, "rm", "--force", "--volumes", self.name)
            self.process.kill()
            self.process.wait()
        self.log.close()

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and wait for its reply. Raises WorkerError."""
        return self.conversation.ask(request, timeout_s)

    def _ending(self) -> str:
        """Describe how the worker ended, with the last lines of its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REMOVAL_S)
        code = self.process.poll()
        where = f"{self.container.config.image} ({self.container.config.python})"
        return f"the {self.role} in {where} ended (exit code {code}){self._tail_text()}"

    def _tail_text(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        tail = os.pread(self.log.fileno(), MAX_LOG_CHARS, max(0, size - MAX_LOG_CHARS))
        lines = tail.decode(errors="replace").strip().splitlines()[-4:]
        return "".join(f"\n  {line}" for line in lines)


def mounts_of(checkout: Path) -> Iterator[str]:
    """Yield the mounts that show a checkout, without what must stay hidden at its top.

    A checkout reached through links is mounted at both of its paths. Hidden are `.git`, which may
    hold the token that fetched it, and `.env`, which may hold a password.
    """
    for root in dict.fromkeys((checkout, checkout.resolve())):
        yield bound(root, root)
        for entry in sorted(root.glob(".*")):
            if entry.is_dir() and not entry.is_symlink():
                yield f"type=tmpfs,{quoted(f'target={entry}')},tmpfs-mode=0555"
            elif not entry.is_symlink():
                yield bound(Path(os.devnull), entry)


def bound(source: Path, target: Path) -> str:
    """Return the `--mount` option that shows a path of this machine read-only."""
    return f"type=bind,{quoted(f'source={source}')},{quoted(f'target={target}')},readonly"


def quoted(field: str) -> str:
    """Return a field as the engines read it: quoted where it has a comma or a quote."""
    return '"{}"'.format(field.replace('"', '""')) if set(field) & set(',"\n') else field


def environment_inside(environ: Mapping[str, str], num_threads: int) -> dict[str, str]:
    """Return the part of the host's environment that a worker may see. Paths are left out,
    because they mean nothing in an image. Proxies are left out, because they may hold passwords."""
    kept = scrubbed_environment(environ, SCRATCH, num_threads)
    names = [f"{kind}_proxy" for kind in ("http", "https", "ftp", "no", "all")]
    return {
        **dict.fromkeys((*names, *map(str.upper, names)), ""),
        **{name: value for name, value in kept.items() if "/" not in value},
        "HOME": str(SCRATCH),
        "TMPDIR": str(SCRATCH),
        "USER": "cudal1-ci",
        "CUDA_VISIBLE_DEVICES": "0",
    }
