"""What it takes to copy outputs that do not lie as their places do: with gaps, for example.

A runner copies all outputs of a batch with one call. Outputs that lie as their places do take a few
kernels together; where one does not, each is copied alone, and memory is read that is mostly gaps.
The trusted reference does not show what that costs. So the judge copies tensors of the same strides
itself. The strides are what the candidate says: one that lies is allowed more before it is called a
cheat, and gains nothing, as the time that counts has the copying in it.
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
"""Of an output that is copied alone: the host's part of it, on a busy core."""
COST = 2.0
"""How much longer than the judge a runner may take for the same: it may be on a slower core."""
NUM_COPIES = 5
MOST_BYTES = 2**28
"""Of what is copied here, and as much of where to; of larger outputs a part is, and the rest
reckoned."""
MOST_TENSORS = 64


def lies_otherwise(slot: OutputSlot) -> bool:
    """Whether an output has other strides than its place."""
    return slot.own_stride != slot.stride


def copying_us(accelerator: Accelerator, slots: Sequence[OutputSlot], num_calls: int) -> float:
    """Microseconds that the outputs of a batch may take to be copied one by one; 0 where they lie
    as their places do.

    Args:
        slots: Of one call, each with the strides of the output itself as `own_stride`.
    """
    if not any(map(lies_otherwise, slots)):
        return 0.0
    call_us = sum(max(ALONE_US, COST * copy_us(accelerator, slot, num_calls)) for slot in slots)
    return call_us * num_calls


def copy_us(accelerator: Accelerator, slot: OutputSlot, num_calls: int) -> float:
    """Median microseconds of one output, of several that follow one another as in a batch; 0 where
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
