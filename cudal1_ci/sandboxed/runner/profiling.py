"""Where the time of a program's calls goes: kernels on a GPU, operators on a CPU.

A run of its own, never one that is timed, as the profiler slows down what it looks at. The profiler
lives in the process of the program, which may lie about it: what it says explains a verdict, and
counts only against the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from ..wire.replies import MAX_NAME_CHARS, MAX_ROWS


def profiled(call: Callable[[], None], device: torch.device) -> list[dict[str, Any]]:
    """Of one `call`: name, number and total microseconds of each kernel (copies and fills are
    kernels too), or of each operator without those that it calls; the longest first."""
    on_gpu = device.type == "cuda"
    # Not torch.profiler's, which imports torch._inductor first: three seconds on a GPU's machine.
    device_name = "cuda" if on_gpu else None
    with profile(use_cpu=not on_gpu, use_device=device_name, use_kineto=True) as found:
        call()
        if on_gpu:
            torch.cuda.synchronize(device)
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    rows: dict[str, dict[str, Any]] = {}
    for event in found.function_events or ():
        if event.device_type != kind:
            continue
        name = str(event.name)[:MAX_NAME_CHARS]
        row = rows.setdefault(name, {"name": name, "num_calls": 0, "time_us": 0.0})
        row["num_calls"] += 1
        row["time_us"] += float(
            event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
        )
    return sorted(rows.values(), key=lambda row: -row["time_us"])[:MAX_ROWS]
