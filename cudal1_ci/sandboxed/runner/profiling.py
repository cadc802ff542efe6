"""Profile a program's calls: kernels on a GPU, operators on a CPU.

Profiled runs are never timed, because the profiler slows the program. The profiler runs in the
program's process, which may forge its results. They explain a verdict, and count only against the
program.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from ..wire.runner import MAX_ROWS
from ..wire.tensors import MAX_NAME_CHARS
from ..wire.verdicts import KernelTime


def profiled(call: Callable[[], None], device: torch.device) -> tuple[KernelTime, ...]:
    """Return name, number and total microseconds of each kernel of one `call`, the longest
    first. Copies and fills are kernels too. On a CPU return operators, each without those that
    it calls."""
    on_gpu = device.type == "cuda"
    # Not torch.profiler's, which imports torch._inductor first: three seconds on a GPU's machine.
    device_name = "cuda" if on_gpu else None
    with profile(use_cpu=not on_gpu, use_device=device_name, use_kineto=True) as found:
        call()
        if on_gpu:
            torch.cuda.synchronize(device)
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    num_calls: dict[str, int] = {}
    times_us: dict[str, float] = {}
    for event in found.function_events or ():
        if event.device_type != kind:
            continue
        name = str(event.name)[:MAX_NAME_CHARS]
        num_calls[name] = num_calls.get(name, 0) + 1
        times_us[name] = times_us.get(name, 0.0) + float(
            event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
        )
    longest = sorted(num_calls, key=lambda name: -times_us[name])[:MAX_ROWS]
    return tuple(
        KernelTime(name=name, num_calls=num_calls[name], time_us=times_us[name]) for name in longest
    )
