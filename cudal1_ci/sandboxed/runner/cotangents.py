"""Provide the gradients that a backward pass starts from, of another loss at every call.

They are the same for every program. If they were the same at every call, a program could keep what
follows from them and the weights only. The verifier draws those of timed calls, and they reach a
runner as its inputs do (timed_rounds.py), so that nothing can be computed with them ahead of the
clock. In trials, which are not timed, a runner draws them from a seed that the verifier sends with
the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..memory.segment import contiguous_stride, dtype_of
from ..wire.tensors import Slot

APART = 1009
"""Distance between seeds of the outputs of a call. One trial's second is then not the next
trial's first."""


def slots_like(outputs: Sequence[Slot], bounds: dict[int, int]) -> list[Slot]:
    """Return slots of the gradients of these outputs. An output without floats has an empty one,
    and one whose shape depends on values a row of as many as it may have."""
    found = []
    for leaf, output in enumerate(outputs):
        dtype = dtype_of(output.dtype)
        shape = (bounds[leaf],) if leaf in bounds else output.shape
        shape = shape if dtype.is_floating_point or dtype.is_complex else (0,)
        found.append(Slot(dtype=output.dtype, shape=shape, stride=contiguous_stride(shape)))
    return found


def drawn_like(leaves: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Draw gradients for these outputs; they are the same in every precision except for its
    rounding."""
    found = []
    for leaf, like in enumerate(leaves):
        has_any = like.is_floating_point() or like.is_complex()
        shape = like.shape if has_any else torch.Size([0])
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        found.append(fill(tensor, torch.Generator(like.device).manual_seed(seed + APART * leaf)))
    return found


def like(given: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return the gradient of an output, of a row of as many numbers as it may have."""
    if given.shape != leaf.shape:
        given = given[: leaf.numel()].reshape(leaf.shape)
    return given.to(leaf.device)


def fill(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Fill a tensor with numbers between -1 and 1, in place."""
    numbers = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    return tensor.copy_(numbers.uniform_(-1.0, 1.0, generator=generator))
