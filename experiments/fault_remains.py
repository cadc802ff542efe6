"""What is left of a trial: processes, descriptors, mappings, files, memory of a GPU.

Processes are found by the environment that they were started with, which names a folder that only
this run uses, also those that detached themselves. Linux, and as root: the environment of a runner
is read. Memory of a GPU is what NVML says of the whole GPU, so no other program may use it
meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pynvml

GONE_S = 15.0
"""What was killed may take as long until nothing of it is left."""
MORE_AT_REST_BYTES = 256 * 2**20
"""What a verifier that continues may hold more than before a trial: its allocator keeps what it
had. A runner that is left over holds more, by its context alone."""
MORE_AT_END_BYTES = 32 * 2**20
"""What the driver may keep when the last process is gone."""


def processes(folder: Path) -> dict[int, str]:
    """Return what was started with the folder's name in its environment or works in it, and all
    descendants of this process."""
    mark, found = str(folder).encode(), {}
    own = set(descendants(os.getpid()))
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            is_marked = mark in (entry / "environ").read_bytes()
            if pid in own or is_marked or str((entry / "cwd").readlink()).startswith(str(folder)):
                found[pid] = (entry / "comm").read_text().strip()
    return found


def descendants(pid: int) -> Iterator[int]:
    """Return of a process, unless they detach themselves."""
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def named(pid: int, name: str) -> list[int]:
    """Descendants of that name."""
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                found.append(child)
    return found


def holdings(pid: int) -> tuple[int, int]:
    """Return how many descriptors and mappings of shared memory a process has."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    shared = sum("/memfd:" in line or "/dev/shm" in line for line in maps)
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), shared


def scratch_of(folder: Path) -> list[str]:
    """Folders and logs of runners. What programs build is kept for as long as the session."""
    found = [*folder.glob("cudal1-ci-*/runners-*/*"), *folder.glob("cudal1-ci-*/probe-*")]
    return [path.name for path in found if path.name != "builds"]


def files_of(folder: Path) -> list[str]:
    """Return all in the folder but the lock, which is no session's own."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def settled(look: Callable[[], list[str]]) -> list[str]:
    """Return what is left once that which was killed had its time to go."""
    deadline = time.monotonic() + GONE_S
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


class GpuMemory:
    """Memory in use and processes of the GPU that a worker gets: the first that may be seen.

    Raises:
        pynvml.NVMLError: There is none, or no other program says.
    """

    def __init__(self) -> None:
        pynvml.nvmlInit()
        name = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
        if name.isdigit():
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        self.before = self.read()

    def read(self) -> tuple[int, int]:
        """Bytes in use, and processes with a context."""
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used), len(running)

    def left(self, than: tuple[int, int], more_bytes: int) -> list[str]:
        """Return what is there now that was not there before."""
        now_bytes, now_processes = self.read()
        found = []
        if now_bytes > than[0] + more_bytes:
            found.append(f"GPU memory {than[0]:,} -> {now_bytes:,} bytes")
        if now_processes > than[1]:
            found.append(f"GPU processes {than[1]} -> {now_processes}")
        return found
