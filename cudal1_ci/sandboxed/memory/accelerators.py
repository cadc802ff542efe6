"""Handle the device where programs run and tensors are: the CPU or one GPU.

Only this module knows both.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ..wire.verifier import Hardware
from .cuda import DeviceSegment
from .segment import Segment

AnySegment = Segment | DeviceSegment

FLUSHED_L2_MULTIPLE = 2
"""Bytes written to flush the L2 cache, in units of its size."""
KEPT_SHARE, KEPT_TRIALS = 64, 8
"""Fraction 1/64 of a GPU's memory. The verifier keeps a larger tensor in the host's memory, where
it is much slower to compare. With fewer trials than eight the tensors may be larger."""
OWN_SHARE = 2
"""Half of a GPU's memory that is free or the verifier's is for all that it holds. The rest is for
runners."""
ASKED_SHARE = 16384
"""Fraction 1/16384 of a GPU's memory. For a larger tensor the verifier checks how much is
allowed."""
CACHED_SHARE = 128
"""Fraction 1/128 of a GPU's memory, which the verifier may hold without need."""
SPIN_S = 0.1
SPIN_CORES = 4
"""For verifier, runner, and what the driver and the rest of the machine need."""
PATIENCE_S = 0.05
IDLE_MULTIPLE = 3.0
IDLE_MORE_S = 300e-6
"""Most duration of a probe. To change from one process to another takes a GPU some hundred
microseconds. To interrupt one that has work takes its time slice, milliseconds."""
UNKNOWN_L2_BYTES = 128 * 2**20
"""L2 size where torch does not report it; larger than any GPU's so far."""


MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files of the topmost control group that a container sees, in both versions."""


class Accelerator(Protocol):
    """The device operations that the verifier needs."""

    kind: str
    device: torch.device
    limit_bytes: int | None
    """What the user allows of its memory,"""
    share_bytes: int | None
    """and this verifier's share while others use the device too."""
    spin_s: float
    """How long verifier and runner wait busily for each other during timing."""

    def segment(self, num_bytes: int) -> AnySegment:
        """Return memory to share with a runner."""
        ...

    def synchronize(self) -> None:
        """Wait for all work of this process on the device."""
        ...

    def flush(self) -> None:
        """Evict inputs and outputs from the device's caches where possible."""
        ...

    def settle(self) -> None:
        """Wait for a moment in which no other process works on the device, up to a limit."""
        ...

    def memory_bytes(self, *, is_alone: bool = False) -> int:
        """Return the memory for tensors of the verifier and its runners together. It exceeds its
        share while it holds the device alone."""
        ...

    def holds(self, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS) -> bool:
        """Return whether the verifier's tensor may be on the device. A tensor that is large for
        one of so many trials may not be, nor any tensor where the verifier already holds much."""
        ...

    def describe(self) -> Hardware:
        """Return what torch knows of it."""
        ...


class Cpu:
    """The processor. Segments are shared memory."""

    kind = "cpu"
    device = torch.device("cpu")
    spin_s = 0.0  # a busy wait here takes a core from the timed process

    def __init__(self) -> None:
        self.limit_bytes: int | None = None
        self.share_bytes: int | None = None

    def segment(self, num_bytes: int) -> Segment:
        return Segment.create(num_bytes)

    def synchronize(self) -> None:
        return

    def flush(self) -> None:
        # A runner that was stopped while others ran finds its caches cold enough, and so does the
        # reference.
        return

    def settle(self) -> None:
        # Runners are stopped by signals.
        return

    def memory_bytes(self, *, is_alone: bool = False) -> int:
        return min(available_memory_bytes(), allowed_bytes(self, is_alone=is_alone))

    def holds(self, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS) -> bool:  # noqa: ARG002
        return True

    def describe(self) -> Hardware:
        return Hardware(
            kind="cpu",
            name=cpu_name(),
            capability=torch.backends.cpu.get_cpu_capability(),
            software=software(),
        )


class Cuda:
    """A GPU, the first that the process can see. Segments are its memory."""

    kind = "cuda"

    def __init__(self) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self.limit_bytes: int | None = None
        self.share_bytes: int | None = None
        self.spin_s = SPIN_S if len(os.sched_getaffinity(0)) >= SPIN_CORES else 0.0
        self.device = torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = getattr(properties, "L2_cache_size", 0) or UNKNOWN_L2_BYTES
        self.total_bytes = properties.total_memory
        self.probe_s = math.inf
        """The shortest duration of a probe."""
        self.line = torch.empty(
            FLUSHED_L2_MULTIPLE * self.l2_bytes, dtype=torch.uint8, device=self.device
        )

    def segment(self, num_bytes: int) -> DeviceSegment:
        return DeviceSegment.create(num_bytes, 0)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def flush(self) -> None:
        self.line.zero_()

    def settle(self) -> None:
        self.probe_s = settled(self.probe, self.probe_s)

    def probe(self) -> float:
        """Return the seconds of a little work. Another process's work must be interrupted for it
        first."""
        started_s = time.perf_counter()
        self.flush()
        self.synchronize()
        return time.perf_counter() - started_s

    def memory_bytes(self, *, is_alone: bool = False) -> int:
        # Memory that this process has cached for its own tensors is free as well. Returning it and
        # taking it again waits for the driver, which starts other processes meanwhile: too costly
        # for little memory.
        reserved = torch.cuda.memory_reserved(self.device)
        if reserved - torch.cuda.memory_allocated(self.device) > self.total_bytes // CACHED_SHARE:
            torch.cuda.empty_cache()
        free_bytes = torch.cuda.mem_get_info(self.device)[0] * 4 // 5
        return min(free_bytes, allowed_bytes(self, is_alone=is_alone))

    def holds(self, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS) -> bool:
        limit_bytes = min(self.total_bytes, allowed_bytes(self))
        share = KEPT_SHARE * max(1, min(num_trials, KEPT_TRIALS)) // KEPT_TRIALS
        if tensor.nbytes <= self.total_bytes // ASKED_SHARE:
            return tensor.nbytes <= limit_bytes // share
        # A policy in training on the same device may have left less than that.
        reserved = torch.cuda.memory_reserved(self.device)
        free_bytes = (torch.cuda.mem_get_info(self.device)[0] + reserved) * 4 // 5
        own_bytes = torch.cuda.memory_allocated(self.device) + tensor.nbytes
        if own_bytes > min(free_bytes, allowed_bytes(self, is_alone=True)) // OWN_SHARE:
            return False
        return tensor.nbytes <= min(limit_bytes, free_bytes) // share

    def describe(self) -> Hardware:
        properties = torch.cuda.get_device_properties(self.device)
        versions = {"cuda": torch.version.cuda or "?"}
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        if cudnn is not None:
            versions["cudnn"] = str(cudnn)
        return Hardware(
            kind="cuda",
            name=properties.name,
            capability=f"{properties.major}.{properties.minor}",
            uuid=str(properties.uuid),
            software={**software(), **versions},
        )


def allowed_bytes(accelerator: Accelerator, *, is_alone: bool = False) -> int:
    """Return the memory of a device that the user allows, less what others need unless it is
    held alone."""
    share_bytes = None if is_alone else accelerator.share_bytes
    return min(accelerator.limit_bytes or sys.maxsize, share_bytes or sys.maxsize)


def place_for(
    accelerator: Accelerator, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS
) -> torch.device:
    """Return where the verifier keeps a tensor of one of so many trials. It is the host's memory
    where the device must not hold it."""
    return accelerator.device if accelerator.holds(tensor, num_trials) else Cpu.device


def accelerator(device: str) -> Accelerator:
    """Return the accelerator for `cpu`, `cuda`, or `auto`, which is the GPU where there is one. The
    GPU is the one that the process can see.

    Raises:
        SystemExit: There is no GPU here, or torch was built without CUDA.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return Cpu()
    if not torch.cuda.is_available():
        raise SystemExit(
            f"device cuda: torch {torch.__version__} sees no GPU (built for CUDA "
            f"{torch.version.cuda or 'not at all'}); use --device cpu, or install a build of torch "
            "for CUDA and an NVIDIA driver"
        )
    return Cuda()


def settled(probe: Callable[[], float], least_s: float) -> float:
    """Probe until a probe is as fast as on an idle device, or the time is over. A running kernel
    of another process cannot be stopped. Return the shortest probe."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        took_s = probe()
        least_s = min(least_s, took_s)
        if took_s <= IDLE_MULTIPLE * least_s + IDLE_MORE_S or time.monotonic() > until_s:
            return least_s


def software() -> dict[str, str]:
    """Return the versions that a measurement depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def available_memory_bytes() -> int:
    """Return the memory that one process may take: four fifths of the machine's, or of its
    limit. A program that takes too much then fails without harm to others."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    for file in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # missing, or `max`
            limits.append(int(file.read_text()))
    return min(limits) * 4 // 5


def free_memory_bytes() -> int:
    """Return the host's free memory, up to what one process may take."""
    free_bytes = available_memory_bytes()
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                free_bytes = min(free_bytes, int(value.split()[0]) * 1024)
    return free_bytes


def cpu_name() -> str:
    """Return the processor's name as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
