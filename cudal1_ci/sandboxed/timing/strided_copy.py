"""Measure the cost of copying outputs whose layout differs from their places', such as with gaps.

A runner copies all outputs of a batch with one call. Outputs with the layout of their places take a
few kernels together. Where one has another layout, each is copied separately, and much of the
memory read is gaps. The trusted reference does not show that cost. So the verifier copies tensors
of the same strides itself. The candidate reports the strides. A false report only raises the limit
before it is called a cheat, and gains nothing, as the time that counts includes the copying.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

import torch

from ..memory.accelerators import Accelerator
from ..memory.segment import dtype_of, span
from ..wire.tensors import OutputSlot

ALONE_US = 20.0
"""Host time of an output that is copied separately, on a busy core."""
COST = 2.0
"""Most ratio of a runner's time to the verifier's for the same copy: its core may be slower."""
NUM_COPIES = 5
MOST_BYTES = 2**28
"""Bytes that are copied here, and as many of the destination. Of larger outputs a part is
copied, and the rest extrapolated."""
MOST_TENSORS = 64


def lies_otherwise(slot: OutputSlot) -> bool:
    """Return whether an output has other strides than its place."""
    return slot.own_stride != slot.stride


def copying_us(accelerator: Accelerator, slots: Sequence[OutputSlot], num_calls: int) -> float:
    """Return microseconds that the outputs of a batch may take to be copied one by one; 0 where
    they have the layout of their places.

    Args:
        slots: Of one call, each with the strides of the output itself as `own_stride`.
    """
    if not any(map(lies_otherwise, slots)):
        return 0.0
    call_us = sum(max(ALONE_US, COST * copy_us(accelerator, slot, num_calls)) for slot in slots)
    return call_us * num_calls


def copy_us(accelerator: Accelerator, slot: OutputSlot, num_calls: int) -> float:
    """Return the median microseconds of one output, of several in a row as in a batch; 0 where
    even a part of it is too large."""
    dtype = dtype_of(slot.dtype)
    shape = list(slot.shape)
    stride = slot.own_stride
    share = 1

    def num_bytes() -> int:
        # An expanded output is smaller than its place.
        return max(span(shape, stride), math.prod(shape)) * dtype.itemsize

    while num_bytes() > MOST_BYTES and shape[0] > 1:
        shape[0], share = -(-shape[0] // 2), share * 2
    if not 0 < num_bytes() <= MOST_BYTES:
        return 0.0
    count = max(1, min(num_calls, MOST_TENSORS, MOST_BYTES // num_bytes()))
    device = accelerator.device
    storages = [torch.zeros(span(shape, stride), dtype=dtype, device=device) for _ in range(count)]
    sources = [one.as_strided(shape, stride) for one in storages]
    places = [torch.zeros(shape, dtype=dtype, device=device) for _ in sources]
    found_us = []
    for _ in range(NUM_COPIES):
        accelerator.synchronize()
        started_s = time.perf_counter()
        torch._foreach_copy_(places, sources)
        accelerator.synchronize()
        found_us.append((time.perf_counter() - started_s) * 1e6)
    return statistics.median(found_us) / count * share
