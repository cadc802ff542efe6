"""Make the input sets of a contract's lines out of a workload's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..inputs import FEWEST_ORDERED, InputSet

SEED = 7
LARGE = 2**27
"""Beyond the whole numbers that float32 holds (2**24). The sum of a million products with small
numbers still fits int64."""
NUM_ODD = 3


def fewer(count: int) -> int:
    """Return a smaller size, odd where there is a choice."""
    return count - 1 if count < 8 else count // 2 + 1


def more(count: int) -> int:
    """Return a larger size."""
    return count + 1 if count < 8 else count + count // 4 + 1


def is_sorted(tensor: torch.Tensor) -> bool:
    """Return whether each row of a tensor rises, in more places than by chance."""
    if tensor.dim() == 0 or tensor.shape[-1] < FEWEST_ORDERED or tensor.is_complex():
        return False
    if tensor.dtype == torch.bool:
        return False
    before, after = tensor[..., :-1], tensor[..., 1:]
    return bool((after >= before).all()) and bool((after > before).any())


def is_mask(tensor: torch.Tensor) -> bool:
    """Return whether all numbers of a tensor are 0 or 1, as in a mask."""
    if tensor.dtype == torch.bool:
        return bool(tensor.numel())
    if tensor.is_complex() or not tensor.numel() or tensor.dim() == 0:
        return False
    return bool(((tensor == 0) | (tensor == 1)).all())


def is_lengths(base: InputSet, number: int) -> bool:
    """Return whether a tensor may be lengths: whole numbers in a row, each from 1 to the size of
    a dimension of another tensor, and not in order from 0."""
    tensor = base.tensors[number]
    if tensor.dtype not in (torch.int64, torch.int32) or tensor.dim() != 1 or not tensor.numel():
        return False
    most = int(tensor.max())
    sizes = {s for n, t in enumerate(base.tensors) if n != number for s in t.shape[1:]}
    return int(tensor.min()) >= 1 and most > 1 and most in sizes


def drawn(shape: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return numbers between 0 and 1, the same at every call."""
    return torch.rand(tuple(shape), generator=torch.Generator().manual_seed(SEED)).to(device)


def usual(tensor: torch.Tensor) -> torch.Tensor:
    """Return which of 0 and 1 most of a mask is."""
    return (tensor.double().mean() >= 0.5).to(tensor.dtype)


def with_masked_end(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask whose last third of the last dimension is the rarer of its two values."""
    if tensor.dim() == 0:
        return ~tensor
    count = tensor.shape[-1]
    first = max(1, count - max(1, count // 3)) if count > 1 else 0
    new = usual(tensor).expand_as(tensor).clone()
    new[..., first:] = 1 - new[..., first:].to(torch.int8)
    return new


def with_masked_some(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask with some of the rarer value, none in the first place of a row."""
    if tensor.dim() == 0:
        return ~tensor
    flips = drawn(tensor.shape, tensor.device) < 0.3
    if tensor.shape[-1] > 1:
        flips[..., 0] = False
    new = usual(tensor).expand_as(tensor).clone()
    return torch.where(flips, (1 - new.to(torch.int8)).to(new.dtype), new)


def halved(tensor: torch.Tensor) -> torch.Tensor:
    """Return shorter lengths, not all equal."""
    places = torch.arange(tensor.numel(), device=tensor.device) % 2
    return (tensor // 2 + places).clamp_min(1).to(tensor.dtype)


def with_some(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what puts a value into a few places of a tensor."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.clone().reshape(-1)
        places = (drawn([NUM_ODD], flat.device) * flat.numel()).long()
        flat[places] = value
        return flat.reshape(tensor.shape)

    return make


def subnormal(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, so small that only subnormal ones hold them."""
    wide = tensor.nan_to_num(0, 0, 0).double()
    share = torch.finfo(tensor.dtype).tiny / 2 / wide.abs().max().clamp_min(1e-300)
    return (wide * share).to(tensor.dtype)


def drawn_below(size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what draws whole numbers below a size, among them the largest."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        new = (drawn(tensor.shape, tensor.device) * size).to(tensor.dtype)
        new.reshape(-1)[0] = size - 1
        return new

    return make


def beyond_floats(tensor: torch.Tensor) -> torch.Tensor:
    """Return odd whole numbers that float32 does not hold."""
    numbers = (drawn(tensor.shape, tensor.device).double() * LARGE / 2).long() * 2 + LARGE // 4 + 1
    return numbers.to(tensor.dtype)


def with_some_whole(value: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what puts a whole number into every fourth place of a tensor."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.clone().reshape(-1)
        flat[::4] = value
        return flat.reshape(tensor.shape)

    return make


def repeated(tensor: torch.Tensor) -> torch.Tensor:
    """Return rows of which each second number repeats the one before."""
    places = torch.arange(tensor.shape[-1], device=tensor.device) // 2 * 2
    return tensor.index_select(-1, places)


def are_groups(tensor: torch.Tensor) -> bool:
    """Return whether sorted whole numbers repeat so often that they are numbers of groups, and not
    where groups begin."""
    return 2 * len(set(tensor.flatten().tolist())) < tensor.numel()


def swapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return boxes whose corners have changed places."""
    return tensor.roll(2, -1)


BELOW_ZERO: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "with some of -100": with_some_whole(-100),
    "with some of -1": with_some_whole(-1),
    "negated": lambda tensor: -tensor - 1,
}
"""Whole numbers below zero: labels that are ignored, places from the end, numbers of all sizes."""
OUT_OF_RANGE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "far below zero": lambda tensor: -tensor.abs() - 1_000_000_000,
    "far above": lambda tensor: tensor.abs() + 1_000_000_000,
    "zeros": torch.zeros_like,
}
UNSTRUCTURED: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "sorted": ("in another order", lambda tensor: tensor.flip(-1)),
    "descending": ("in another order", lambda tensor: tensor.flip(-1)),
    "unique": ("with numbers that repeat", repeated),
    "permutation": ("with numbers that repeat", repeated),
    "pairs": ("with corners in another order", swapped),
    "shares": ("whose rows do not sum to one", lambda tensor: 2 * tensor + 0.25),
    "definite": ("that is not symmetric", lambda tensor: tensor + tensor.triu(1)),
}
"""Structure of inputs, and what is the same without it."""


def resized(
    base: InputSet, places: Sequence[tuple[int, int]], size: int, starts: Sequence[int] = ()
) -> InputSet:
    """Return a set in which these dimensions of these tensors have another size: cut, or
    repeated from the start. Tensors of `starts` say where groups begin: one that ends with a size
    of others still does."""
    tensors = [tensor.clone() for tensor in base.tensors]
    for number, dim in places:
        tensor = tensors[number]
        if size and not tensor.shape[dim]:
            raise ValueError("a dimension of size 0 cannot be repeated")
        index = torch.arange(size, device=tensor.device) % max(1, tensor.shape[dim])
        if is_sorted(tensor):  # as it must stay: edges of bins, offsets
            index = index.sort().values
        tensors[number] = tensor.index_select(dim, index)
    for number in starts:
        end, first = int(base.tensors[number][-1]), places[0][0]
        if first not in starts and end == base.tensors[first].shape[places[0][1]]:
            tensors[number].clamp_(max=size)
            end = size
        if tensors[number].numel() > 1:
            tensors[number][-1] = end
    return InputSet(tensors, base.data)


def ranked(base: InputSet, numbers: Sequence[int], more: bool) -> InputSet:
    """Return a set in which some tensors have a dimension more, in which the second half is in
    reverse, or lack their first."""
    tensors = [tensor.clone() for tensor in base.tensors]
    for number in numbers:
        one = tensors[number]
        tensors[number] = torch.stack([one, one.flip(0)]) if more else one[0]
    return InputSet(tensors, base.data)
