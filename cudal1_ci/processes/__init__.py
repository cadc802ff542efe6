"""Start, limit and end sandboxed processes, and hold device locks.

    with Local(python).start("judge", num_threads=1, device="cpu") as worker:
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
    """A process, or a container of them, that answers."""

    @property
    def pid(self) -> int:
        """Of the ancestor of all of its processes, on this machine."""
        ...

    @property
    def software(self) -> dict[str, str]:
        """What it runs in, beyond what it can say of itself: belongs to the Device."""
        ...

    def ask(self, request: Asks[R], timeout_s: float) -> R:
        """Send a request and wait for its reply. Raises WorkerError."""
        ...


class Executor(Protocol):
    """Where workers are started."""

    @property
    def has_disk(self) -> bool:
        """Whether the folders of this machine are the workers', so that what they build lasts, and
        the locks of its devices are theirs too."""
        ...

    def start(self, role: str, *, num_threads: int, device: str) -> AbstractContextManager[Worker]:
        """A worker that runs inside of a `with`; entering it may raise a CudaL1Error."""
        ...


EXECUTORS: dict[ExecutorName, Callable[[ContainerConfig, str, tuple[Path, ...]], Executor]] = {
    "local": lambda _, python, __: Local(python),
    "container": lambda config, _, checkouts: Container(config, checkouts),
}
"""By the name in the configuration; made of the container's settings, the project's interpreter and
the checkouts that programs are read from."""

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
