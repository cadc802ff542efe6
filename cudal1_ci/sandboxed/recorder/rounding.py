"""Round each result of a call's operations up or down at random (Monte Carlo arithmetic).

Every float that an operation rounded moves by one unit in the last place of its dtype, up or down.
Sums and products of matrices round in between, so the floats that they read move too (not those of
short dtypes, whose sums are made in float32). Whole numbers stay: counts, masks, indices and what
is exact are not rounded. Running sums are made in blocks, of one size for a row by itself and of
another for several, so what a block takes over from the one before is rounded too. The outputs of a
few such calls show how much rounding alone may move them.
Not covered: what a program computes outside of torch's operations (its own kernels).

Source: Parker, "Monte Carlo Arithmetic", 1997; Fevotte and Lathuiliere, "Verrou", 2016 (random
rounding).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .operations import CASTS, ORDERS, name_of, rounds, sums, writes, written_by

PERIOD = 65521
"""A prime, so that no row of a tensor is as long as the signs that are repeated."""
NUM_WAYS = 16
"""Seeds of equal remainders order equal numbers alike: of 0 by their places, of 1 in reverse."""
CHUNK_ELEMENTS = {"cpu": 2**16, "cuda": 2**24}
"""Elements that are moved at a time: on a processor what its caches hold."""
SHORT_EPS = 1e-4
BLOCKS = 32
"""Blocks of a running sum."""
RANGES = {
    dtype: (torch.finfo(dtype).eps, torch.finfo(dtype).max / 2)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


def seed_of(number: int, rng: random.Random) -> int:
    """Return the seed of a call, by its number: the orders of places come first, then any."""
    return NUM_WAYS * rng.randrange(2**26) + min(number, NUM_WAYS - 1)


@dataclass(frozen=True)
class Kind:
    """What an operation does, by its name and schema alone."""

    rounds: bool
    sums: bool
    writes: bool
    is_cast: bool
    is_running_sum: bool
    is_order: bool

    @staticmethod
    def of(func: Any) -> Kind:
        name = name_of(func)
        is_sum, is_order = name == "cumsum", name in ORDERS
        return Kind(rounds(func), sums(func), writes(func), name in CASTS, is_sum, is_order)


class RandomRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Move by some units in the last place, up or down by the signs that a seed draws."""

    def __init__(self, seed: int, num_units: int = 1):
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_units = num_units
        self.way = seed % NUM_WAYS
        """The order of equal numbers: that of their places, the reverse, or any."""
        self.rng = random.Random(seed)
        self.kinds: dict[Any, Kind] = {}
        self.signs: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call an operation and move what it rounded."""
        kwargs = kwargs or {}
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = Kind.of(func)
        if kind.is_order:
            return self.ordered(func, args, kwargs)
        if not kind.rounds:
            return func(*args, **kwargs)
        if kind.is_cast:
            return self.cast(func, args, kwargs)
        written = []
        if kind.writes:
            written = [
                one for one in tree_leaves(written_by(func, args, kwargs)) if is_rounded(one)
            ]
        before = [one.clone() for one in written]
        if kind.sums and not written:
            args, kwargs = tree_map(self.moved, (args, kwargs))
        result = func(*args, **kwargs)
        for one, old in zip(written, before, strict=True):
            self.move(one, old)
        if kind.is_running_sum and is_rounded(result) and result.dim():
            self.carry(result, kwargs["dim"] if "dim" in kwargs else args[1])
        places = {id(one) for one in written}
        for one in [result] if isinstance(result, torch.Tensor) else tree_leaves(result):
            if id(one) not in places and is_rounded(one):
                self.move(one)
        return result

    def ordered(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Sort or select, with equal numbers in any order where none is promised."""
        names = [one.name for one in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        tensor, dim = given["self"], given.get("dim", -1)
        if given.get("stable") or "values" in given or not tensor.dim():
            return func(*args, **kwargs)
        size = tensor.shape[dim]
        generator = torch.Generator().manual_seed(self.rng.randrange(2**31))
        order = torch.randperm(size, generator=generator)
        if self.way < 2 and name_of(func) != "kthvalue":
            order = torch.arange(size) if self.way == 0 else torch.arange(size).flip(0)
            is_falling = given.get("descending", given.get("largest", "k" in given))
            func, count = torch.ops.aten.sort.stable, given.get("k", size)
            given = {"stable": True, "dim": dim, "descending": is_falling}
        order = order.to(tensor.device)
        values, places = func(**{**given, "self": tensor.index_select(dim, order)})
        if "stable" in given:
            values, places = values.narrow(dim, 0, count), places.narrow(dim, 0, count)
        return values, order[places]

    def cast(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Cast, and move what the new dtype does not hold."""
        source = args[1] if name_of(func) == "copy" else args[0]
        result = func(*args, **kwargs)
        if is_rounded(source) and is_rounded(result):
            is_held = result.to(source.dtype) == source
            self.move(result, torch.where(is_held, result, torch.nan))
        return result

    def moved(self, value: Any) -> Any:
        """Return a moved copy of floats that a sum reads; anything else unchanged."""
        if not is_rounded(value) or torch.finfo(value.dtype).eps > SHORT_EPS:
            return value
        copied = value.detach().clone()
        self.move(copied)
        return copied

    def move(self, tensor: torch.Tensor, before: torch.Tensor | None = None) -> None:
        """Move each element by one unit in the last place, in place; with the values of `before`
        only the elements that changed."""
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
            before = None if before is None else torch.view_as_real(before.resolve_conj())
        for piece, old in chunks(tensor, before):
            is_kept = is_exact(piece) if old is None else is_exact(piece) | (piece == old)
            moved = torch.addcmul(piece, piece, self.steps(piece))
            torch.where(is_kept, piece, moved, out=piece)

    def carry(self, sums: torch.Tensor, dim: int) -> None:
        """Round what each block of running sums takes over from the one before, in place."""
        along = sums.movedim(dim, -1)
        size = -(-along.shape[-1] // BLOCKS)
        ends = along[..., size - 1 : -1 : size].contiguous()
        if sums.is_complex() or not ends.numel():
            return
        errors = torch.where(is_exact(ends), 0.0, ends * self.steps(ends)).cumsum(-1)
        rest = along[..., size:]
        rest += errors.to(sums.dtype).repeat_interleave(size, -1)[..., : rest.shape[-1]]

    def steps(self, piece: torch.Tensor) -> torch.Tensor:
        """Return half of the dtype's epsilon for each element and unit, with random signs. What is
        added then rounds to the next float up or down, or to as many as there are units."""
        key = piece.dtype, piece.device
        most = PERIOD + piece.numel()
        if key not in self.signs or self.signs[key].numel() < most:
            generator = torch.Generator().manual_seed(self.rng.randrange(2**31))
            drawn = torch.randint(0, 2, (PERIOD,), generator=generator) * 2 - 1
            half = drawn.double().mul(self.num_units * torch.finfo(piece.dtype).eps / 2)
            repeated = half.repeat(-(-most // PERIOD)).to(piece.dtype)
            self.signs[key] = repeated.to(piece.device)
        start = self.rng.randrange(PERIOD)
        return self.signs[key][start : start + piece.numel()].view(piece.shape)


def is_rounded(value: Any) -> bool:
    """Return whether a value is a plain tensor of floats of two bytes or more."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout == torch.strided
        and (value.is_floating_point() or value.is_complex())
        and value.itemsize > 1
        and 0 not in value.shape
    )


def is_exact(piece: torch.Tensor) -> torch.Tensor:
    """Return which elements are no rounded numbers: whole ones, and those at the end of the
    range, which masks write and which would overflow."""
    eps, most = RANGES[piece.dtype]
    if piece.device.type == "cpu":  # where a look at the value costs no wait
        low, high = torch.aminmax(piece)
        if -1 / eps < low.item() and high.item() < 1 / eps:
            return piece.frac() == 0
    size = piece.abs()
    return (size.frac() == 0) & (size < 1 / eps) | (size > most)


def chunks(
    tensor: torch.Tensor, before: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """Yield views of all elements of a tensor and of its earlier values, in the order of memory
    where there are no gaps."""
    size = CHUNK_ELEMENTS["cpu" if tensor.device.type == "cpu" else "cuda"]
    if tensor.numel() <= size:
        yield tensor, before
        return
    flat = in_order(tensor)
    old = None if before is None else in_order(before)
    if flat is None or (before is not None and before.stride() != tensor.stride()):
        yield tensor, before
        return
    pieces = torch.split(flat, size)
    earlier = [None] * len(pieces) if old is None else torch.split(old, size)
    yield from zip(pieces, earlier, strict=True)


def in_order(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a flat view, where the dimensions in some order have no gaps."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    dense = tensor.detach().permute(order)
    return dense.view(-1) if dense.is_contiguous() else None
