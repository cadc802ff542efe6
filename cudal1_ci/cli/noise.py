"""Check what makes measurements noisy on this machine: load, clocks, threads that share a core,
and other users of a GPU.

Reads /sys, /proc and NVML; changes nothing and makes no CUDA context. A noisy machine can still
scan: intervals get wider and small gains are not proven.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from cudal1_ci.cli.diagnosis import Diagnosis

CPUS = Path("/sys/devices/system/cpu")
MOST_LOAD = 0.25
"""Of the cores, in the last minute. A run that has just ended counts too."""
NOT_SHOWN = "not reported here (usual in virtual machines and containers)"
THROTTLED = {
    "SwPowerCap": "the power limit",
    "HwSlowdown": "the hardware",
    "SwThermalSlowdown": "heat",
    "HwThermalSlowdown": "heat",
    "HwPowerBrakeSlowdown": "the power supply",
}
"""What lowers a GPU's clock, by the name of its bit in NVML."""


def noise() -> Iterator[Diagnosis]:
    """Check the CPU, then each GPU."""
    yield load(os.getloadavg()[0], len(os.sched_getaffinity(0)))
    yield governor(CPUS)
    yield turbo(CPUS)
    yield threads_per_core(CPUS)
    yield from gpus(pynvml)


def load(in_last_minute: float, num_cores: int) -> Diagnosis:
    """Check what else runs on the cores."""
    is_busy = in_last_minute > MOST_LOAD * num_cores
    return Diagnosis(
        name="load",
        grade="limited" if is_busy else "ok",
        found=f"{in_last_minute:.1f} on {num_cores} cores in the last minute",
        fix="stop other programs, or wait, before you measure" if is_busy else "",
    )


def governor(cpus: Path) -> Diagnosis:
    """Check whether the clock of the cores follows their load."""
    found = {read(one) for one in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    if not found:
        return Diagnosis(name="CPU governor", grade="unknown", found=NOT_SHOWN)
    is_steady = found == {"performance"}
    return Diagnosis(
        name="CPU governor",
        grade="ok" if is_steady else "limited",
        found=", ".join(sorted(map(str, found))),
        fix="" if is_steady else "`sudo cpupower frequency-set -g performance`",
    )


def turbo(cpus: Path) -> Diagnosis:
    """Check whether the clock of the cores depends on how many of them are busy."""
    of_intel, of_others = read(cpus / "intel_pstate/no_turbo"), read(cpus / "cpufreq/boost")
    if of_intel is None and of_others is None:
        return Diagnosis(name="turbo", grade="unknown", found=NOT_SHOWN)
    is_on = of_intel == "0" if of_intel is not None else of_others == "1"
    file, off = ("intel_pstate/no_turbo", 1) if of_intel is not None else ("cpufreq/boost", 0)
    return Diagnosis(
        name="turbo",
        grade="limited" if is_on else "ok",
        found="on" if is_on else "off",
        fix=f"`echo {off} | sudo tee {cpus / file}`" if is_on else "",
    )


def threads_per_core(cpus: Path) -> Diagnosis:
    """Check whether two threads share a core (SMT)."""
    active = read(cpus / "smt/active")
    if active is None:
        return Diagnosis(name="SMT", grade="unknown", found=NOT_SHOWN)
    is_on = active == "1"
    return Diagnosis(
        name="SMT",
        grade="limited" if is_on else "ok",
        found="on" if is_on else "off",
        fix=f"`echo off | sudo tee {cpus / 'smt/control'}`, or keep other programs away"
        if is_on
        else "",
    )


def read(file: Path) -> str | None:
    """Return the text of a file of the system; None for one that is not there."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def gpus(nvml: Any) -> Iterator[Diagnosis]:
    """Check each GPU; none where there is no driver."""
    try:
        nvml.nvmlInit()
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        ]
    except nvml.NVMLError:
        return
    for index, handle in enumerate(handles):
        for check in (persistence, clocks, processes):
            try:
                yield check(nvml, handle, index)
            except nvml.NVMLError as error:
                name = f"GPU {index} {check.__name__}"
                yield Diagnosis(name=name, grade="unknown", found=f"driver error: {error}")


def persistence(nvml: Any, handle: Any, index: int) -> Diagnosis:
    """Check whether the driver stays loaded between two programs."""
    is_on = nvml.nvmlDeviceGetPersistenceMode(handle) == 1
    return Diagnosis(
        name=f"GPU {index} persistence",
        grade="ok" if is_on else "limited",
        found="on" if is_on else "off",
        fix="" if is_on else f"`sudo nvidia-smi -i {index} -pm 1`",
    )


def clocks(nvml: Any, handle: Any, index: int) -> Diagnosis:
    """Check what lowers the clock. Whether it is locked, NVML does not say."""
    now = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    most = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    causes = sorted(
        {
            cause
            for name, cause in THROTTLED.items()
            if bits & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)
        }
    )
    lowered = f", lowered by {' and '.join(causes)}" if causes else ""
    return Diagnosis(
        name=f"GPU {index} clocks",
        grade="limited" if causes else "ok",
        found=f"SM at {now} of {most} MHz{lowered}",
        fix=f"`sudo nvidia-smi -i {index} -lgc MHZ`, with a clock that it can hold"
        if causes
        else "",
    )


def processes(nvml: Any, handle: Any, index: int) -> Diagnosis:
    """Count the programs that use the GPU."""
    count = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return Diagnosis(
        name=f"GPU {index} processes",
        grade="limited" if count else "ok",
        found=f"{count or 'no'} other {'program' if count == 1 else 'programs'}",
        fix="stop them, or measure on another GPU: --device cuda:N" if count else "",
    )
