"""Gradients that a backward pass starts from: those of a loss that is another one at every call.

The same for every program; were they the same at every call, what follows from them and the weights
alone could be kept. Those of timed calls the judge draws, and they reach a runner as its inputs do
(lanes.py), so that nothing can be computed with them ahead of the clock. In trials, which are not
timed, a runner draws them from a seed that the judge sends with the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..memory.segment import contiguous_stride, dtype_of
from ..wire.tensors import Slot

APART = 1009
"""Of seeds of the outputs of a call, so that one trial's second is not the next trial's first."""


def slots_like(outputs: Sequence[Slot]) -> list[Slot]:
    """Where those of a call with these outputs lie: of one that is no float there is none, which
    has no elements."""
    found = []
    for output in outputs:
        dtype = dtype_of(output.dtype)
        shape = output.shape if dtype.is_floating_point or dtype.is_complex else (0,)
        found.append(Slot(dtype=output.dtype, shape=shape, stride=contiguous_stride(shape)))
    return found


def drawn_like(leaves: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Those of a call that returned these; the same in every precision but for its rounding."""
    found = []
    for leaf, like in enumerate(leaves):
        has_any = like.is_floating_point() or like.is_complex()
        shape = like.shape if has_any else torch.Size([0])
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        found.append(fill(tensor, torch.Generator(like.device).manual_seed(seed + APART * leaf)))
    return found


def fill(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers between -1 and 1, in place."""
    numbers = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    return tensor.copy_(numbers.uniform_(-1.0, 1.0, generator=generator))
