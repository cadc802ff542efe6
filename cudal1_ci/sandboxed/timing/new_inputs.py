"""Make new values for timed rounds, which no program has seen before, in whole or in part.

Drawn specs are drawn again. For what the user's `get_inputs` made there is a pool (calls.py). A set
returns from it when all others were used, and never unchanged. Floats are multiplied element by
element, with random signs where both occur. Whole numbers change places, and those of two sets are
mixed, where the reference accepts that. (Where nothing of a set can change, as of offsets only, it
returns unchanged. So does a call without any tensor.)
A key under which a program keeps an answer must therefore be the whole input, except for what the
reference itself does not see. A few elements of a round may be the only difference to the round
before (timed_rounds.py), so that a smaller key fails.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..memory.segment import slot_of
from ..verifier.compare import index_of
from ..verifier.inputs import (
    FACTORS,
    InputSet,
    Source,
    draw,
    factor_between,
    is_float,
    shapes_of,
)
from ..verifier.invariants import impose
from ..wire.tensors import Slot

PATTERN_LENGTH = 2**18 - 5
"""Not a divisor of any usual width, so that rows do not repeat each other."""
DRAWN_ELEMENTS = {"cpu": 2**18, "cuda": 2**26}
"""Floats of a spec that are drawn again. Drawing more takes longer than many calls."""
EVEN_RATIO = 4.0
"""Between the largest and the smallest value, where signs may be changed."""
FEW_PAIRS = 3
"""Pairs of elements of a tensor that change places in a trial where almost nothing changes. In a
round it is one pair. With three pairs of 128 elements, the first four elements would change
every sixth time; a program may keep an answer by these."""


@dataclass
class Stock:
    """The values for the rounds of a repetition. `base` is what every place holds first."""

    source: Source
    base: Sequence[InputSet]
    rng: random.Random
    generator: torch.Generator
    evens: list[bool] = field(init=False)
    """Floats whose signs may change."""
    deck: list[int] = field(init=False)
    """Numbers of the pool's sets, where all have the layout of the base's,"""
    num_dealt: int = 0
    """and how many of them were taken."""
    alike: list[InputSet] = field(init=False)
    """Sets of the trials of the same shapes."""

    def __post_init__(self) -> None:
        first, pool = self.base[0], self.source.pool
        self.evens = [is_even(tensor) for tensor in first.tensors]
        self.alike = [one for one in self.source.made if shapes_of(one) == shapes_of(first)]
        self.deck = []
        if pool is not None:
            form = form_of(first)
            is_alike = all(form_of(one) == form for one in self.base)
            if is_alike and all(form_of(pool.take(i)) == form for i in range(len(pool.laid))):
                self.deck = self.rng.sample(range(len(pool.laid)), len(pool.laid))

    def renew(self, number: int, places: Sequence[torch.Tensor]) -> None:
        """Write new values of a set of the base to the memory of its tensors."""
        if self.source.specs:
            self.draw_again(self.base[number], places)
            return
        is_new = self.num_dealt < len(self.deck)
        one, other = self.deal(number)
        stays = any(map(is_float, one.tensors)) or any(self.source.moves) or self.source.is_rigid
        if not is_new and not stays:
            one = rolled(one, self.generator)
        for tensor, place in zip(one.tensors, places, strict=True):
            place.copy_(tensor)
        self.vary_all(places)
        if not is_new:
            self.change_whole_numbers(places, other)

    def deal(self, number: int) -> tuple[InputSet, InputSet]:
        """Return the next set of the pool, or the base's where there is no pool, and another one
        to mix it with."""
        pool = self.source.pool
        if pool is None or not self.deck:
            base = self.base[number]
            return base, self.rng.choice(self.alike) if self.alike else base
        place = self.num_dealt % len(self.deck)
        one, other = (self.deck[(place + step) % len(self.deck)] for step in (0, 1))
        self.num_dealt += 1
        if self.num_dealt % len(self.deck) == 0:
            self.rng.shuffle(self.deck)  # so that each has another neighbor the next time
        return pool.take(one), pool.take(other)

    def change_whole_numbers(self, places: Sequence[torch.Tensor], other: InputSet) -> None:
        """Move the whole numbers of a set that was used before within their rows. Where rows
        need no structure of their own, half of the numbers come from another set, as a sum does
        not see the order."""
        for number, place in enumerate(places):
            if not self.source.moves[number]:
                continue
            if self.source.mixes[number] and not self.source.is_rigid:
                share = torch.empty(place.shape, device=place.device)
                is_other = share.uniform_(generator=self.generator) < 0.5
                place.copy_(torch.where(is_other, other.tensors[number].to(place.device), place))
            order = torch.randperm(place.shape[-1], generator=self.generator, device=place.device)
            place.copy_(place[..., order])

    def draw_again(self, one: InputSet, places: Sequence[torch.Tensor]) -> None:
        """Draw values of specs. Where floats are many, change those of the set one by one."""
        for spec, tensor, place, even in zip(
            self.source.specs, one.tensors, places, self.evens, strict=True
        ):
            if is_float(tensor) and tensor.numel() > DRAWN_ELEMENTS[place.device.type]:
                place.copy_(tensor)
                vary(place, self.generator, even)
                if tensor.is_floating_point():
                    impose(place, spec.invariants, spec.low, spec.high)
            else:
                place.copy_(draw(spec, self.generator))

    def vary_all(self, places: Sequence[torch.Tensor]) -> None:
        """Change floats element by element, or all by one factor where only that is accepted."""
        factor = factor_between(*FACTORS, self.generator) if self.source.is_rigid else None
        for place, even in zip(places, self.evens, strict=True):
            if not is_float(place) or not place.numel():
                continue
            if factor is None:
                vary(place, self.generator, even)
            else:
                place.mul_(factor)
        self.source.impose(places)

    def change_few(self, places: Sequence[torch.Tensor]) -> None:
        """Change a few elements of a set of this source."""
        change_few(self.source, places, self.rng, num_pairs=1)


def change_few(
    source: Source,
    tensors: Sequence[torch.Tensor],
    rng: random.Random,
    num_pairs: int = FEW_PAIRS,
) -> None:
    """Exchange a few elements of a set: whole numbers that may move, and floats. Floats that are
    in order, or can only be changed together, stay."""
    for tensor, moves, names in zip(tensors, source.moves, source.invariants, strict=True):
        if moves or (is_float(tensor) and not source.is_rigid and not names):
            exchange(tensor, rng, num_pairs)


def form_of(one: InputSet) -> tuple[str | None, list[Slot]]:
    """Return what two sets share that can replace each other."""
    return one.data, [slot_of(tensor) for tensor in one.tensors]


def is_even(tensor: torch.Tensor) -> bool:
    """Return whether it holds numbers of both signs and of similar size."""
    if tensor.is_complex():
        return True
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    low, high = (float(one) for one in torch.aminmax(tensor.detach()))
    return low < 0 < high and 1 / EVEN_RATIO <= -low / high <= EVEN_RATIO


def vary(tensor: torch.Tensor, generator: torch.Generator, has_signs: bool = False) -> None:
    """Multiply every element by its own number between 3/4 and 1, in place. Values stay within
    the stated range where that holds 0. With `has_signs` half of the numbers are negative. Long
    tensors repeat the numbers."""
    length = min(tensor.numel(), PATTERN_LENGTH)
    numbers = torch.empty(length, device=tensor.device).uniform_(0.75, 1.0, generator=generator)
    if has_signs:
        signs = torch.empty_like(numbers).uniform_(-1.0, 1.0, generator=generator)
        numbers.copysign_(signs)
    if not tensor.is_contiguous():
        numbers = numbers.repeat(-(-tensor.numel() // length))[: tensor.numel()]
        tensor.mul_(numbers.reshape(tensor.shape))
        return
    flat = tensor.view(-1)
    whole = flat.numel() // length * length
    flat[:whole].view(-1, length).mul_(numbers)
    flat[whole:].mul_(numbers[: flat.numel() - whole])


def exchange(tensor: torch.Tensor, rng: random.Random, num_pairs: int = FEW_PAIRS) -> None:
    """Exchange a few pairs of elements: floats anywhere, others in their row, which may have to
    hold each number once."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return
    size = tensor.shape[-1]
    for _ in range(num_pairs):
        row, other_row = (rng.randrange(tensor.numel() // size) for _ in range(2))
        other_row = other_row if is_float(tensor) else row
        one = (*index_of(row, tensor.shape[:-1]), rng.randrange(size))
        other = (*index_of(other_row, tensor.shape[:-1]), rng.randrange(size))
        value = tensor[one].clone()
        tensor[one] = tensor[other].clone()
        tensor[other] = value


def rolled(one: InputSet, generator: torch.Generator) -> InputSet:
    """Return all tensors with the batch in another order, where they share a batch dimension."""
    sizes = {t.shape[0] for t in one.tensors if t.dim()}
    if len(sizes) != 1 or min(sizes) < 2:
        return one
    size = sizes.pop()
    order = torch.randperm(size, generator=generator, device=one.tensors[0].device)
    return InputSet([t[order] if t.dim() else t for t in one.tensors], one.data)
