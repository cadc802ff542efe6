"""New values for timed rounds: seen by no program before, and by no part of them told apart.

Drawn specs are drawn again. Of what the user's `get_inputs` made there is a pool (called.py), from
which a set comes back when all others were used, and never as it was: floats are multiplied element
by element, with random signs where both occur; whole numbers change places, and those of two sets
are mixed, where the reference takes that. (Where nothing of a set can change, as of offsets alone,
it comes again as it was; so does a call without any tensor.) What an answer is kept by must then be
all of the input, up to what the reference itself does not see; and as a few elements of a round may
be all that is other than in the round before (lanes.py), nothing less will do.
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
    put_in_order,
    shapes_of,
)
from ..wire.tensors import Slot

PATTERN_LENGTH = 2**18 - 5
"""Not a divisor of any usual width, so that rows do not repeat each other."""
DRAWN_ELEMENTS = {"cpu": 2**18, "cuda": 2**26}
"""Floats of a spec that are drawn again; of more it takes longer than many a call."""
EVEN_RATIO = 4.0
"""Between the largest and the smallest value where a sign is taken for one that may be other."""
FEW_PAIRS = 3
"""Of elements of a tensor that change places where nearly nothing changes in a trial. In a round it
is one: of 128 elements three pairs would be among the first four, by which an answer is kept, every
sixth time."""


@dataclass
class Stock:
    """What the rounds of a launch are filled with. `base` is what every place holds first."""

    source: Source
    base: Sequence[InputSet]
    rng: random.Random
    generator: torch.Generator
    evens: list[bool] = field(init=False)
    """Floats whose signs may be other."""
    deck: list[int] = field(init=False)
    """Numbers of the pool's sets, where all are laid out as the base's are,"""
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
        """New values of the base's set of that number into the memory of its tensors."""
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
        """The next set of the pool, or that of the base where there is no pool, and another one to
        mix it with."""
        pool = self.source.pool
        if pool is None or not self.deck:
            base = self.base[number]
            return base, self.rng.choice(self.alike) if self.alike else base
        place = self.num_dealt % len(self.deck)
        one, other = (self.deck[(place + step) % len(self.deck)] for step in (0, 1))
        self.num_dealt += 1
        if self.num_dealt % len(self.deck) == 0:
            self.rng.shuffle(self.deck)  # so that another one is beside each the next time
        return pool.take(one), pool.take(other)

    def change_whole_numbers(self, places: Sequence[torch.Tensor], other: InputSet) -> None:
        """Of a set that was there before: they change places in their rows, and where rows need no
        structure of their own half of them are another set's, as a sum does not see the order."""
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
        """Values of specs; floats that are many are those of the set, changed one by one."""
        for spec, tensor, place, even in zip(
            self.source.specs, one.tensors, places, self.evens, strict=True
        ):
            if is_float(tensor) and tensor.numel() > DRAWN_ELEMENTS[place.device.type]:
                place.copy_(tensor)
                vary(place, self.generator, even)
            else:
                place.copy_(draw(spec, self.generator))

    def vary_all(self, places: Sequence[torch.Tensor]) -> None:
        """Floats element by element, or all of them as one where only that is taken."""
        factor = factor_between(*FACTORS, self.generator) if self.source.is_rigid else None
        for place, even in zip(places, self.evens, strict=True):
            if not is_float(place) or not place.numel():
                continue
            if factor is None:
                vary(place, self.generator, even)
            else:
                place.mul_(factor)
        put_in_order(places, self.source.orders)

    def change_few(self, places: Sequence[torch.Tensor]) -> None:
        """As the function of that name does, of the source at hand."""
        change_few(self.source, places, self.rng, num_pairs=1)


def change_few(
    source: Source,
    tensors: Sequence[torch.Tensor],
    rng: random.Random,
    num_pairs: int = FEW_PAIRS,
) -> None:
    """A few elements of a set change places: of whole numbers that may, and of floats unless they
    are in order, or can only be changed all together."""
    for tensor, moves, order in zip(tensors, source.moves, source.orders, strict=True):
        if moves or (is_float(tensor) and not source.is_rigid and not order):
            exchange(tensor, rng, num_pairs)


def form_of(one: InputSet) -> tuple[str | None, list[Slot]]:
    """What two sets share that can stand for each other."""
    return one.data, [slot_of(tensor) for tensor in one.tensors]


def is_even(tensor: torch.Tensor) -> bool:
    """Whether it holds numbers of both signs, about as large."""
    if tensor.is_complex():
        return True
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    low, high = (float(one) for one in torch.aminmax(tensor.detach()))
    return low < 0 < high and 1 / EVEN_RATIO <= -low / high <= EVEN_RATIO


def vary(tensor: torch.Tensor, generator: torch.Generator, has_signs: bool = False) -> None:
    """Every element times a number of its own between 3/4 and 1, in place: within the range that
    was stated where that holds 0. With `has_signs` half of the numbers are negative. Long tensors
    repeat the numbers."""
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
    """A few pairs of elements change places: floats anywhere, others in their row, which may have
    to hold each number once."""
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
    """All tensors with the batch in another order, where they share a batch dimension."""
    sizes = {t.shape[0] for t in one.tensors if t.dim()}
    if len(sizes) != 1 or min(sizes) < 2:
        return one
    size = sizes.pop()
    order = torch.randperm(size, generator=generator, device=one.tensors[0].device)
    return InputSet([t[order] if t.dim() else t for t in one.tensors], one.data)
