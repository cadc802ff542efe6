"""Make values keep to what those of a workload do (tracer/invariants.py says what that is).

Drawn specs keep to what the tracer recorded or a workload states; tensors that the user's functions
make, and all that is made of them, to what all of these share.

A mask of floats holds 0 and 1. `(1 - mask) * -1e9` of a mask of 0.9 takes more from all scores than
a float holds next to them, and nothing is left to compare. So an argument that is named a mask, and
is one, stays one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tracer.invariants import invariants_of
from .magnitude import root_mean_square

LEAST_SIDE = 1e-2
"""Least size of a box, in units of the root mean square of its corners."""
IN_PLACE = frozenset({"unique", "permutation"})
"""Whole numbers that stay so when they change places in their row."""
FLAGS = "flags"
Names = tuple[str, ...]


def common(tensors: Sequence[torch.Tensor]) -> Names:
    """Return what the values of all tensors keep to."""
    first, *others = ({*invariants_of(one)} for one in tensors)
    return tuple(sorted(first.intersection(*others)))


def are_flags(tensor: torch.Tensor) -> bool:
    """Return whether floats are zeros and ones, and some are ones."""
    if not tensor.is_floating_point():
        return False
    is_one = tensor == 1
    return bool((is_one | (tensor == 0)).all() & is_one.any())


def are_movable(names: Names) -> bool:
    """Return whether whole numbers may change places in their row."""
    return IN_PLACE.issuperset(names)


def impose(tensor: torch.Tensor, names: Names, low: float | None, high: float | None) -> None:
    """Change floats in place so that they keep to what is stated."""
    if not names or not tensor.numel():
        return
    tensor = without_repeats(tensor)
    if "range" in names:
        tensor.clamp_(low, high)
    if "sorted" in names or "descending" in names:
        tensor.copy_(tensor.sort(-1, descending="descending" in names).values)
    if "pairs" in names:
        put_in_pairs(tensor)
    if "shares" in names:
        put_in_shares(tensor)
    if "definite" in names:
        make_definite(tensor)
    if FLAGS in names:
        tensor.copy_(tensor.abs() > tensor.abs().max() / 2)


def without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of an expanded tensor that holds each of its elements once."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def put_in_pairs(tensor: torch.Tensor) -> None:
    """Make boxes of the numbers, none of them empty."""
    one, other = tensor[..., :2].clone(), tensor[..., 2:].clone()
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    least = LEAST_SIDE * (root_mean_square(tensor) or 1.0)
    tensor[..., :2] = low
    tensor[..., 2:] = torch.maximum(
        high, low + torch.maximum(low.abs() * LEAST_SIDE, low.new_tensor(least))
    )


def make_definite(tensor: torch.Tensor) -> None:
    """Make square matrices symmetric. Where they are not positive definite, their diagonal gets
    larger than the rest of its row."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return
    matrices = (tensor + tensor.mT).double() / 2
    is_wrong = torch.linalg.cholesky_ex(matrices.nan_to_num()).info != 0
    sums = matrices.abs().sum(-1)
    largest = sums.amax(-1, keepdim=True)
    least = LEAST_SIDE * torch.where(largest > 0, largest, 1.0)
    raised = matrices + torch.diag_embed(sums + least)
    tensor.copy_(torch.where(is_wrong[..., None, None], raised, matrices))


def put_in_shares(tensor: torch.Tensor) -> None:
    """Make rows of numbers that are not negative and sum to one."""
    sizes = tensor.double().abs()
    sums = sizes.sum(-1, keepdim=True)
    tensor.copy_(torch.where(sums > 0, sizes / sums.clamp_min(1e-300), 1 / tensor.shape[-1]))


def draw_whole_numbers(
    shape: Sequence[int], names: Names, first: int, last: int, generator: torch.Generator
) -> torch.Tensor | None:
    """Return numbers from the first to the last one that keep to what is stated; None where
    nothing is."""
    names = tuple(name for name in names if name not in ("range", "definite"))
    if not names or not shape:
        return None
    device, length = generator.device, shape[-1]

    def random(high: int, size: Sequence[int]) -> torch.Tensor:
        return torch.randint(0, high, tuple(size), generator=generator, device=device)

    def order() -> torch.Tensor:
        return torch.rand(tuple(shape), generator=generator, device=device).argsort(-1)

    if "permutation" in names:
        return order()
    if "prefix" in names:
        lengths = 1 + random(max(1, length), (*shape[:-1], 1))
        return (torch.arange(length, device=device) < lengths).to(torch.int64)
    if "unique" in names:
        room = max(1, last - first + 2 - length)
        found = random(room, shape).sort(-1).values + torch.arange(length, device=device) + first
        return found if {"sorted", "offsets"} & {*names} else found.gather(-1, order())
    found = first + random(last - first + 1, shape)
    if "descending" in names:
        return found.sort(-1, descending=True).values
    found = found.sort(-1).values
    if "offsets" in names and length:
        found[..., 0], found[..., -1] = 0, last
    return found
