"""Profile one call event by event: what the host issues, what the device runs, and memory.

As in profiling.py, the program may forge what its process reports. It is shown to people, and
decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from ..wire.tensors import MAX_NAME_CHARS
from ..wire.verdicts import MAX_EVENTS, CallCost, TimelineEvent

NUM_PROFILED = 3
"""Calls of which the shortest is kept: others may have been disturbed."""


def cost_of(call: Callable[[], Any], device: torch.device) -> CallCost:
    """Return events, launches and memory of one `call`. On a GPU the host's events are those that
    no other one contains, and the device's are kernels, copies and fills."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        peak_bytes = torch.cuda.max_memory_allocated(device)
    else:
        peak_bytes = peak_of(call)
    found, host_us = min(
        (profiled_call(call, device) for _ in range(NUM_PROFILED)), key=lambda one: one[1]
    )
    every = [event for event in found.function_events or () if event.time_range.elapsed_us() >= 0]
    kernels = [event for event in every if event.device_type == DeviceType.CUDA]
    issued = [
        event
        for event in every
        if event.device_type == DeviceType.CPU and (event.cpu_parent is None)
    ]
    # Waits for the device at the end are the profiler's own.
    issued = [event for event in issued if not str(event.name).startswith("cudaDeviceSync")]
    chosen = sorted([*issued, *kernels], key=lambda event: -event.time_range.elapsed_us())
    kept = sorted(chosen[:MAX_EVENTS], key=lambda event: event.time_range.start)
    origin = min((event.time_range.start for event in kept), default=0.0)
    names = list(dict.fromkeys(str(event.name)[:MAX_NAME_CHARS] for event in kept))
    places = {name: number for number, name in enumerate(names)}
    return CallCost(
        host_us=host_us,
        device_us=sum(e.time_range.elapsed_us() for e in kernels) if on_gpu else None,
        num_launches=len(kernels) if on_gpu else len(issued),
        peak_bytes=peak_bytes,
        names=tuple(names),
        events=tuple(
            TimelineEvent(
                name=places[str(event.name)[:MAX_NAME_CHARS]],
                on_device=event.device_type == DeviceType.CUDA,
                start_us=max(0.0, float(event.time_range.start - origin)),
                duration_us=float(event.time_range.elapsed_us()),
            )
            for event in kept
        ),
        is_cut=len(chosen) > MAX_EVENTS,
    )


def profiled_call(call: Callable[[], Any], device: torch.device) -> tuple[profile, float]:
    """Return the profile of one call, and the microseconds until the host had issued it."""
    on_gpu = device.type == "cuda"
    with profile(use_cpu=True, use_device="cuda" if on_gpu else None, use_kineto=True) as found:
        started_s = time.perf_counter()
        output = call()
        host_us = 1e6 * (time.perf_counter() - started_s)
        if on_gpu:
            torch.cuda.synchronize(device)
        del output
    return found, host_us


def peak_of(call: Callable[[], Any]) -> int:
    """Return the most bytes that a call had allocated at once on the CPU, beyond what was there
    before it."""
    with profile(use_cpu=True, profile_memory=True, use_kineto=True) as found:
        call()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in found.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, num_bytes in sorted(changes, key=lambda one: one[0]):
        held += num_bytes
        peak = max(peak, held)
    return peak
