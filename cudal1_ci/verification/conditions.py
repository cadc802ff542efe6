"""The state of a GPU before and after a launch, as NVML tells it to the host.

A measurement under other conditions than its neighbors says nothing: clocks that a power limit
holds down, another process on the same GPU. Such launches are made again, and where that does not
help the verdict is inconclusive. Reading needs no CUDA context and no rights.
Not covered: clocks between the two readings; pairs are interleaved so that drift meets both sides.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from cudal1_ci.processes import WORKER_NAME
from cudal1_ci.records import Record

CLOCK_TOLERANCE = 0.05
"""A launch whose clock afterwards is further from its neighbors' median was not like them."""

SLOWED: dict[int, str] = {
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "too hot (hardware)",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "too hot (software)",
}
"""Reasons that disturb. The power limit does not: it holds for both sides of a pair alike."""


class Conditions(Record, frozen=True, kw_only=True):
    """What NVML read at one moment; None where the GPU does not say."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()
    other_processes: int | None = None
    """Processes with a CUDA context on this GPU that are no judge's: another judge waits while this
    one times (processes/lock.py)."""


class Gpu:
    """One GPU, by the UUID that the judge reports."""

    def __init__(self, uuid: str):
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        self.index = int(pynvml.nvmlDeviceGetIndex(self.handle))
        """Among the machine's."""

    @property
    def memory_bytes(self) -> int | None:
        """All of it; None where the GPU does not say."""
        found = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        return None if found is None else int(found.total)

    def read(self, judge_pid: int) -> Conditions:
        """Now; `judge_pid` is the ancestor of the processes that belong to the trial."""
        ask = self._ask
        power_mw = ask(pynvml.nvmlDeviceGetPowerUsage)
        reasons = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        running = ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        others = None
        if running is not None:
            others = sum(is_foreign(process.pid, judge_pid) for process in running)
        return Conditions(
            clock_mhz=ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            slowed_by=tuple(name for bit, name in SLOWED.items() if reasons & bit),
            other_processes=others,
        )

    def num_others(self) -> int:
        """Processes with memory of this GPU that this one has not started, other judges among
        them."""
        running = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return sum(is_of_others(process.pid) for process in running)

    def _ask(self, function: Any, *arguments: Any) -> Any:
        """None for what this GPU or its driver does not support."""
        with contextlib.suppress(pynvml.NVMLError):
            return function(self.handle, *arguments)
        return None


def gpu_of(uuid: str | None) -> Gpu | None:
    """The GPU, or None where NVML cannot be asked (a container without it, a MIG slice)."""
    if uuid is None:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        return Gpu(uuid)
    return None


def is_foreign(pid: int, ancestor: int) -> bool:
    """Whether a process is neither the ancestor nor started by it; nor by this host, whose language
    model is silent while it measures on the same device; nor by another session's worker, which
    does nothing while this session has the device. One that is gone is nobody's: NVML lists a
    runner for a moment after its end. So is one that another namespace hides."""
    while pid not in (ancestor, os.getpid()):
        try:
            if WORKER_NAME.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return False
            pid = parent_of(pid)
        except OSError:
            return False
        if pid <= 1:
            return True
    return False


def is_of_others(pid: int) -> bool:
    """Whether a process is there that this one has not started."""
    with contextlib.suppress(OSError):
        while pid > 1 and pid != os.getpid():
            pid = parent_of(pid)
        return pid != os.getpid()
    return False


def parent_of(pid: int) -> int:
    """Raises OSError for a process that is gone, or that another namespace hides."""
    # The name in brackets may hold anything; what follows the last bracket is regular.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def disturbance(before: Conditions, after: Conditions) -> str | None:
    """Why a launch between two readings says nothing; None when it does."""
    reasons = {*before.slowed_by, *after.slowed_by}
    if reasons:
        return f"the GPU was slowed down: {', '.join(sorted(reasons))}"
    others = max(before.other_processes or 0, after.other_processes or 0)
    if others:
        return f"{others} other process{'es' if others > 1 else ''} on the GPU"
    return None


def has_another_clock(clock_mhz: float | None, others_mhz: Sequence[float]) -> bool:
    """Whether a launch ran at another clock than the launches before it."""
    if clock_mhz is None or len(others_mhz) < 2:
        return False
    usual_mhz = statistics.median(others_mhz)
    return abs(clock_mhz - usual_mhz) > CLOCK_TOLERANCE * usual_mhz
