"""Read the state of a GPU before and after a repetition, from NVML on the host.

A measurement under other conditions than its neighbors is not comparable: a power limit may hold
the clock down, or another process may use the GPU. Such repetitions are made again. Where that does
not help, the verdict is inconclusive. Reading needs no CUDA context and no rights.
Not covered: clocks between the two readings. Pairs are interleaved, so that drift affects both
sides.
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
"""Relative difference to the neighbors' median clock. A repetition beyond it was disturbed."""

SLOWED: dict[int, str] = {
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "too hot (hardware)",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "too hot (software)",
}
"""Reasons that disturb. The power limit does not, because it affects both sides of a pair
equally."""


class Conditions(Record, frozen=True, kw_only=True):
    """NVML's readings at one moment. A value is None where the GPU does not report it."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()
    other_processes: int | None = None
    """Processes with a CUDA context on this GPU that belong to no verifier. Other verifiers wait
    while this one times (processes/lock.py)."""


class Gpu:
    """A GPU, found by the UUID that the verifier reports."""

    def __init__(self, uuid: str):
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        self.index = int(pynvml.nvmlDeviceGetIndex(self.handle))
        """Number among the machine's GPUs."""

    @property
    def memory_bytes(self) -> int | None:
        """Return the size of the whole memory, or None where the GPU does not report it."""
        found = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        return None if found is None else int(found.total)

    def read(self, verifier_pid: int) -> Conditions:
        """Read the conditions now. `verifier_pid` is the ancestor of the processes of the trial."""
        ask = self._ask
        power_mw = ask(pynvml.nvmlDeviceGetPowerUsage)
        reasons = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        running = ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        others = None
        if running is not None:
            others = sum(is_foreign(process.pid, verifier_pid) for process in running)
        return Conditions(
            clock_mhz=ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            slowed_by=tuple(name for bit, name in SLOWED.items() if reasons & bit),
            other_processes=others,
        )

    def num_others(self) -> int:
        """Count processes that use this GPU's memory and were not started by this one. Other
        verifiers count."""
        running = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return sum(is_of_others(process.pid) for process in running)

    def _ask(self, function: Any, *arguments: Any) -> Any:
        """Return NVML's answer, or None for what this GPU or its driver does not support."""
        with contextlib.suppress(pynvml.NVMLError):
            return function(self.handle, *arguments)
        return None


def gpu_of(uuid: str | None) -> Gpu | None:
    """Return the GPU, or None where NVML does not work (a container without it, a MIG slice)."""
    if uuid is None:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        return Gpu(uuid)
    return None


def is_foreign(pid: int, ancestor: int) -> bool:
    """Return whether a process belongs neither to the ancestor nor to this tool.

    Not foreign are the ancestor and its descendants, and this host's own: its language model is
    idle while the device is measured on. Workers of other sessions are not foreign, as they are
    idle while this session has the device. A process that has ended is not foreign: NVML lists a
    runner for a moment after its end. A process that another namespace hides is not foreign either.
    """
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
    """Return whether a process exists that this one has not started."""
    with contextlib.suppress(OSError):
        while pid > 1 and pid != os.getpid():
            pid = parent_of(pid)
        return pid != os.getpid()
    return False


def parent_of(pid: int) -> int:
    """Return the parent's ID. Raises OSError for a process that is gone or hidden by a
    namespace."""
    # The name in brackets may hold anything; what follows the last bracket is regular.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def disturbance(before: Conditions, after: Conditions) -> str | None:
    """Return why a repetition between two readings does not count, or None when it does."""
    reasons = {*before.slowed_by, *after.slowed_by}
    if reasons:
        return f"the GPU was slowed down: {', '.join(sorted(reasons))}"
    others = max(before.other_processes or 0, after.other_processes or 0)
    if others:
        return f"{others} other process{'es' if others > 1 else ''} on the GPU"
    return None


def has_another_clock(clock_mhz: float | None, others_mhz: Sequence[float]) -> bool:
    """Return whether a repetition ran at another clock than the repetitions before it."""
    if clock_mhz is None or len(others_mhz) < 2:
        return False
    usual_mhz = statistics.median(others_mhz)
    return abs(clock_mhz - usual_mhz) > CLOCK_TOLERANCE * usual_mhz
