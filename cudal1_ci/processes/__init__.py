"""Start, limit and end sandboxed processes, and hold device locks.

    with Local(python).start("verifier", num_threads=1, device="cpu") as worker:
        worker.ask(Describe(), timeout_s=60)

local.py starts a worker as a child process, container.py in a container of Docker or Podman.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from cudal1_ci.processes.container import Container, ContainerConfig
from cudal1_ci.processes.local import WORKER_NAME, Local
from cudal1_ci.sandboxed.wire.codec import Asks

R = TypeVar("R")
ExecutorName = Literal["local", "container"]


class Worker(Protocol):
    """A process, or a container of processes, that answers requests."""

    @property
    def pid(self) -> int:
        """Return the process ID, on this machine, of the ancestor of all processes of the
        worker."""
        ...

    @property
    def software(self) -> dict[str, str]:
        """Return what the worker runs in and cannot find out itself. It becomes part of the
        Device."""
        ...

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and wait for its reply. Raises WorkerError."""
        ...


class Executor(Protocol):
    """A place where workers are started."""

    @property
    def has_disk(self) -> bool:
        """Return whether workers use the folders and device locks of this machine. Then builds
        last."""
        ...

    def start(self, role: str, *, num_threads: int, device: str) -> AbstractContextManager[Worker]:
        """Return a worker that runs inside a `with`. Entering the `with` may raise a
        CudaL1Error."""
        ...


EXECUTORS: dict[ExecutorName, Callable[[ContainerConfig, str, tuple[Path, ...]], Executor]] = {
    "local": lambda _, python, __: Local(python),
    "container": lambda config, _, checkouts: Container(config, checkouts),
}
"""Executors by their name in the configuration. Each is made from the container's settings, the
project's interpreter and the checkouts that programs are read from."""

__all__ = [
    "EXECUTORS",
    "WORKER_NAME",
    "Container",
    "ContainerConfig",
    "Executor",
    "ExecutorName",
    "Local",
    "Worker",
]
