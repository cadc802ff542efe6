"""Where programs run and tensors lie: the CPU or one GPU. The only place that knows both."""

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
"""Of a GPU's memory: the judge keeps a larger tensor in the host's, where it is much slower to
compare. With fewer trials than so many they may be larger, as there are fewer of them."""
OWN_SHARE = 2
"""Of a GPU's memory that is free or the judge's, for all that it holds; the rest is for runners."""
ASKED_SHARE = 16384
"""Of a GPU's memory: of a larger tensor it is asked whether there is as much as is allowed."""
CACHED_SHARE = 128
"""Of a GPU's memory, what the judge may hold of it without need."""
SPIN_S = 0.1
SPIN_CORES = 4
"""Judge, runner, and what the driver and the rest of the machine need."""
PATIENCE_S = 0.05
IDLE_MULTIPLE = 3.0
IDLE_MORE_S = 300e-6
"""What a probe may take: to change from one process to another takes a GPU some hundred
microseconds, and to interrupt one that has work its time slice, milliseconds."""
UNKNOWN_L2_BYTES = 128 * 2**20
"""Where torch does not say how large the L2 cache is; larger than any GPU's so far."""


MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Of the control group that a container sees as the topmost one, in both versions."""


class Accelerator(Protocol):
    """What the judge needs of a device."""

    kind: str
    device: torch.device
    limit_bytes: int | None
    """What the user allows of its memory,"""
    share_bytes: int | None
    """and what is this judge's of it while others work there too."""
    spin_s: float
    """How long judge and runner wait for each other without a pause while something is timed."""

    def segment(self, num_bytes: int) -> AnySegment:
        """Memory to share with a runner."""
        ...

    def synchronize(self) -> None:
        """Wait for all work of this process on the device."""
        ...

    def flush(self) -> None:
        """Evict inputs and outputs from the device's caches where that can be done."""
        ...

    def settle(self) -> None:
        """Wait for a moment in which nobody else works on the device, for a while."""
        ...

    def memory_bytes(self, *, is_alone: bool = False) -> int:
        """Memory for tensors that the judge and its runners may take together: more than its share
        while it holds the device alone."""
        ...

    def holds(self, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS) -> bool:
        """Whether the judge's tensor may lie here: not where it is large for one of so many
        trials, or where the judge holds much already."""
        ...

    def describe(self) -> Hardware:
        """What torch knows of it."""
        ...


class Cpu:
    """The processor; segments are shared memory."""

    kind = "cpu"
    device = torch.device("cpu")
    spin_s = 0.0  # who waits here takes a core from the one that is timed

    def __init__(self) -> None:
        self.limit_bytes: int | None = None
        self.share_bytes: int | None = None

    def segment(self, num_bytes: int) -> Segment:
        return Segment.create(num_bytes)

    def synchronize(self) -> None:
        return

    def flush(self) -> None:
        # A runner that was stopped while others ran finds its caches cold enough, and so does
        # the reference.
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
    """One GPU, the first that the process can see; segments are its memory."""

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
        """The least that one took."""
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
        """Seconds for a little work: another process's has to be interrupted for it first."""
        started_s = time.perf_counter()
        self.flush()
        self.synchronize()
        return time.perf_counter() - started_s

    def memory_bytes(self, *, is_alone: bool = False) -> int:
        # What this process has cached of its own tensors is free as well. To give it back and take
        # it again waits for the driver, which starts other processes meanwhile: not for a little.
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
        # A policy that is trained beside may have left less than that.
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
    """Of a device's memory, by the user and, unless it is held alone, for the sake of others."""
    share_bytes = None if is_alone else accelerator.share_bytes
    return min(accelerator.limit_bytes or sys.maxsize, share_bytes or sys.maxsize)


def place_for(
    accelerator: Accelerator, tensor: torch.Tensor, num_trials: int = KEPT_TRIALS
) -> torch.device:
    """Where the judge keeps a tensor of one of so many trials: in the host's memory, where the
    device is not to hold it."""
    return accelerator.device if accelerator.holds(tensor, num_trials) else Cpu.device


def accelerator(device: str) -> Accelerator:
    """The accelerator for `cpu`, `cuda`, or `auto`, which is the GPU where there is one. Which GPU
    is decided by what the process can see.

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
    """Probe until one takes as long as it does on a device that is idle, or patience ends: a kernel
    of another process that is under way cannot be stopped. Returns the least that one took."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        took_s = probe()
        least_s = min(least_s, took_s)
        if took_s <= IDLE_MULTIPLE * least_s + IDLE_MORE_S or time.monotonic() > until_s:
            return least_s


def software() -> dict[str, str]:
    """Versions that a measurement depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def available_memory_bytes() -> int:
    """Memory that one process may take: four fifths of the machine's, or of the limit it runs
    under, so that a program that takes too much fails alone."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    for file in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # not there, or `max`
            limits.append(int(file.read_text()))
    return min(limits) * 4 // 5


def free_memory_bytes() -> int:
    """Of the host's, what is free now, as far as a process may take it."""
    free_bytes = available_memory_bytes()
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                free_bytes = min(free_bytes, int(value.split()[0]) * 1024)
    return free_bytes


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
