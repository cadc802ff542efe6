"""Start workers as child processes of this machine.

A worker runs in the user's own interpreter and in its own process group. Its environment has only
the listed names. It talks over one socket; its stdout and stderr are a log. When the host ends, the
socket closes and the worker ends too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes.conversation import Conversation
from cudal1_ci.processes.environment import listed
from cudal1_ci.processes.interpreter import SEARCHED
from cudal1_ci.sandboxed.wire.codec import Asks

R = TypeVar("R")

SANDBOXED = Path(__file__).resolve().parent.parent / "sandboxed"
MAX_LOG_CHARS = 4000

WORKER_NAME = "cudal1_sandboxed"
"""Part of every worker's command line. Other sessions of this tool recognize workers by it."""

BOOTSTRAP = """\
import sys
if sys.version_info < (3, 10):
    sys.exit("Python %d.%d is too old for the project's environment: 3.10 or newer is needed; name "
             "another interpreter: --python PATH, or the `python` setting" % sys.version_info[:2])
sys.path[:] = [path for path in sys.path if path]
import importlib.util
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "cudal1_sandboxed", folder + "/__init__.py", submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules["cudal1_sandboxed"] = package
spec.loader.exec_module(package)
from cudal1_sandboxed.start import main
main(sys.argv[2:])
"""
"""Loads the worker's folder as a package of its own. Neither this tool nor its dependencies
become importable for the user's code, and its interpreter does not need them. The working
folder, which `-c` puts first, is removed from the path. `-P` would do the same, but Python 3.10
lacks it."""

STEADY_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}
"""Makes glibc keep freed memory instead of returning it to the kernel at each call. Otherwise a
large output may be paged in again at each call, by chance and for the life of a process."""

COMPILES_ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""A program compiles in its own process. Inductor would start as many processes as there are
cores, next to what is timed. Started from a runner on an H200 they found no GPU ("Could not find
an active GPU backend"). A program fails that compiles for longer than they take to start."""


def scrubbed_environment(
    environment: Mapping[str, str], home: Path, num_threads: int, gpu_index: str | None = ""
) -> dict[str, str]:
    """Return the part of the host's environment that a worker may see.

    It has the listed names without possible secrets. Of several GPUs it shows the one of the index:
    the first by default, and none with None.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if gpu_index is None:
        gpu = ""
    else:
        first = int(gpu_index or 0)
        gpu = visible[first] if first < len(visible) and visible[first] else str(first)
    threads = str(num_threads)
    return {
        **listed(environment),
        "HOME": str(home),
        "CUDA_VISIBLE_DEVICES": gpu,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **COMPILES_ALONE,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        **STEADY_ALLOCATOR,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def without_torch(python: str) -> str:
    """Say what to do about an interpreter without torch. Where it is the tool's own, the project's
    was not found: torch does not belong into the tool's environment."""
    if python == sys.executable:
        return (
            f"no environment of the project was found (searched: {SEARCHED}), and the tool's own "
            f"has no torch; name the project's interpreter: --python PATH, or the `python` setting"
        )
    return (
        f"torch is not installed in {python}, the project's interpreter; install the project's "
        "requirements there, or name another interpreter: --python PATH, or the `python` setting"
    )


@dataclass(frozen=True)
class Local:
    """Start workers in an interpreter of this machine."""

    python: str = sys.executable
    has_disk = True

    def start(self, role: str, *, num_threads: int, device: str) -> Worker:
        """Return a worker that runs inside a `with`."""
        return Worker(role, python=self.python, num_threads=num_threads, device=device)


class Worker:
    """A worker process. The end of the `with` kills it and its process group."""

    def __init__(
        self,
        role: str,
        *,
        python: str = sys.executable,
        num_threads: int = 1,
        device: str = "cpu",
    ):
        self.role = role
        self.python = python
        self.num_threads = num_threads
        self.device = device
        self.software: dict[str, str] = {}
        """Versions that the worker cannot find out itself."""

    def __enter__(self) -> Self:
        self.scratch = tempfile.TemporaryDirectory(prefix="cudal1-ci-", ignore_cleanup_errors=True)
        home = Path(self.scratch.name)
        self.log_path = home / "log"
        ours, theirs = socket.socketpair()
        kind, _, index = self.device.partition(":")
        gpu = None if kind == "none" else index
        arguments = [
            str(SANDBOXED),
            self.role,
            str(theirs.fileno()),
            str(self.num_threads),
            kind,
        ]
        with theirs, self.log_path.open("wb") as log:
            # The log is opened here, because a worker that ends with an error removes its folder.
            self.log = self.log_path.open("rb")
            try:
                self.process = subprocess.Popen(
                    [self.python, "-c", BOOTSTRAP, *arguments],
                    pass_fds=[theirs.fileno()],
                    env=scrubbed_environment(os.environ, home, self.num_threads, gpu),
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                self.log.close()
                self.scratch.cleanup()
                raise WorkerError(
                    f"{self.python} cannot be started ({error}); name the interpreter of the "
                    "project with --python or the `python` setting"
                ) from error
        self.conversation = Conversation(ours, self.role, self._ending)
        return self

    @property
    def pid(self) -> int:
        """Return the ID of the process. All that it starts descends from it."""
        return self.process.pid

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.conversation.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()
        self.scratch.cleanup()

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and wait for its reply. Raises WorkerError."""
        return self.conversation.ask(request, timeout_s)

    def _ending(self) -> str:
        """Describe how the worker ended, with the last lines of its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        code = self.process.poll()
        tail = self.log_tail().strip().splitlines()[-4:]
        text = f"the {self.role} ended (exit code {code})"
        if any("No module named 'torch'" in line for line in tail):
            return without_torch(self.python)
        return text + ("".join(f"\n  {line}" for line in tail))

    def log_tail(self) -> str:
        """Return the end of the worker's output."""
        try:
            self.log.seek(0)
            data = self.log.read()[-MAX_LOG_CHARS:]
        except (OSError, ValueError):  # or the log is closed
            return ""
        return data.decode(errors="replace")
