"""Make a program's inputs: drawn by the verifier, never seen before, the same for all programs.

Specs are drawn from their dtype, shape and observed range. What the user's `get_inputs` returned
keeps its structure (triangular, sorted, one-hot) and gets new values by scaling. new_inputs.py
makes those of timed rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..memory.accelerators import AnySegment
from ..memory.segment import (
    contiguous_stride,
    dtype_of,
    place,
    size_bytes,
    slot_of,
    span,
    view_of,
)
from ..wire.arguments import GivenCall, TensorSpec
from ..wire.runner import LaidSet
from ..wire.tensors import Slot
from .compare import as_bools
from .invariants import (
    FLAGS,
    Names,
    are_flags,
    common,
    draw_whole_numbers,
    impose,
    without_repeats,
)
from .magnitude import pieces

FEWEST_ORDERED = 4
"""Numbers in a row: three are in order by chance."""
SMALL_BYTES = 2**20
TOGETHER_BYTES = 2**28
"""Most bytes compared at once, which takes several times their memory."""
DEFAULT_INTEGER_HIGH = 1
"""For integers without a stated range: 0 and 1 are valid indices nearly everywhere."""

FACTORS = (0.75, 1.0)
"""Factors for sets that a function made. Values stay within the stated range where that holds 0
(a probability, a share, an angle)."""


@dataclass
class InputSet:
    """Tensors of one call, in the order of the slots; `data` is the opaque rest of a made call."""

    tensors: list[torch.Tensor]
    data: str | None = None
    structure: tuple[int, ...] = ()
    """Numbers of the tensors that are the structure of others, such as indices."""
    masks: tuple[int, ...] = ()
    """Numbers of the tensors that the reference's signature calls a mask."""

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True)
class Laid:
    """Places of a set's tensors."""

    slots: list[Slot]
    data: str | None
    structure: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()


@dataclass
class Pool:
    """Many sets that the user's function made, in one piece, so that they can be moved together."""

    flat: torch.Tensor
    """Their bytes."""
    laid: list[Laid]

    def take(self, number: int) -> InputSet:
        """Return views of a set's tensors."""
        one = self.laid[number]
        return InputSet([view_of(self.flat, slot) for slot in one.slots], one.data)


@dataclass
class Source:
    """The source of input sets: drawn specs, or sets that the user's function made."""

    call: GivenCall
    specs: list[TensorSpec] = field(default_factory=list)
    made: list[InputSet] = field(default_factory=list)
    pool: Pool | None = None
    """Further sets, for timed rounds."""
    grads: list[bool] = field(default_factory=list)
    is_rigid: bool = False
    """Whether floats can only be scaled as a whole, and rising or falling whole numbers must
    stay, since the reference needs their structure."""
    moves: list[bool] = field(default_factory=list)
    """Whole numbers that may change places in a row, where the reference accepts it."""
    mixes: list[bool] = field(default_factory=list)
    """Whole numbers among them that may be mixed with another set's."""
    invariants: list[Names] = field(default_factory=list)
    """What the values of each tensor keep to, such as an order (invariants.py)."""
    cast: torch.dtype | None = None
    """The dtype that autocast casts floats to."""

    def __post_init__(self) -> None:
        if not self.moves:
            self.moves = [False] * len(self.specs or (self.made[0].tensors if self.made else ()))
        if not self.mixes:
            self.mixes = [False] * len(self.moves)
        if not self.invariants:
            self.invariants = [()] * len(self.moves)

    def draw(self, number: int, generator: torch.Generator) -> InputSet:
        """Return a new set. Made ones are taken in turn and scaled, specs are drawn."""
        if self.specs or not self.made:
            return InputSet([draw(spec, generator) for spec in self.specs])
        return self.changed(self.made[number % len(self.made)], generator)

    def draw_alike(self, number: int, generator: torch.Generator) -> InputSet:
        """Return a new set of the form of the first one, where the user's function makes several
        forms: in a batch all calls return as much."""
        if self.specs or not self.made:
            return self.draw(number, generator)
        alike = [one for one in self.made if shapes_of(one) == shapes_of(self.made[0])]
        return self.changed(alike[number % len(alike)], generator)

    def changed(self, base: InputSet, generator: torch.Generator) -> InputSet:
        """Return a made set, scaled, on the generator's device."""
        here = InputSet([tensor.to(generator.device) for tensor in base.tensors], base.data)
        found = scaled(here, factor_between(*FACTORS, generator))
        self.impose(found.tensors)
        return found

    def impose(self, tensors: Sequence[torch.Tensor]) -> None:
        """Change floats of a set in place so that they keep to what the workload's do."""
        ranges = [(one.low, one.high) for one in self.specs] or [(None, None)] * len(tensors)
        for tensor, names, (low, high) in zip(tensors, self.invariants, ranges, strict=True):
            if tensor.is_floating_point():
                impose(tensor, names, low, high)


def shapes_of(one: InputSet) -> list[torch.Size]:
    """Return the shapes of the tensors of a set."""
    return [tensor.shape for tensor in one.tensors]


def dtypes_of(one: InputSet) -> list[torch.dtype]:
    """Return the dtypes of the tensors of a set."""
    return [tensor.dtype for tensor in one.tensors]


def is_float(tensor: torch.Tensor) -> bool:
    """Return whether scaling changes only the values."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_of_floats(spec: TensorSpec) -> bool:
    """Return whether scaling changes only the values drawn for a spec."""
    dtype = dtype_of(spec.dtype)
    return dtype.is_floating_point or dtype.is_complex


def movable(sets: Sequence[InputSet]) -> list[bool]:
    """Return which tensors of made sets are whole numbers that may move within a row. Offsets,
    lengths of a padding, and orders may not: they rise or fall in all sets."""
    return [
        not is_float(alike[0]) and any(one.numel() and not is_monotone(one) for one in alike)
        for alike in zip(*(one.tensors for one in sets), strict=True)
    ]


def mixable(sets: Sequence[InputSet]) -> list[bool]:
    """Return which of the same tensors are whole numbers with free rows. A row holds a number
    twice, so that rows are no orders. Sums differ, so that rows are not one-hot, or shares."""
    return [
        not is_float(alike[0])
        and any(one.dim() > 0 and has_twice(one) for one in alike)
        and len({total for one in alike for total in row_sums(one)}) > 1
        for alike in zip(*(one.tensors for one in sets), strict=True)
    ]


def invariants_in(sets: Sequence[InputSet]) -> list[Names]:
    """Return what the values of each of the same tensors keep to in all sets."""
    return [
        (FLAGS,) if number in sets[0].masks and all(map(are_flags, alike)) else common(alike)
        for number, alike in enumerate(zip(*(one.tensors for one in sets), strict=True))
    ]


def has_twice(tensor: torch.Tensor) -> bool:
    """Return whether a row holds a number more than once."""
    numbers = tensor.to(torch.int64).sort(-1).values
    return bool((numbers[..., 1:] == numbers[..., :-1]).any())


def row_sums(tensor: torch.Tensor) -> list[int]:
    """Return sums over the last dimension."""
    numbers = tensor.to(torch.int64)
    return (numbers.sum(-1) if tensor.dim() else numbers).flatten().tolist()


def is_monotone(tensor: torch.Tensor) -> bool:
    """Return whether no row both rises and falls."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return True
    numbers = tensor.to(torch.int64)
    steps = numbers[..., 1:] - numbers[..., :-1]
    rises, falls = (steps > 0).any(-1), (steps < 0).any(-1)
    return not bool((rises & falls).any())


def factor_between(low: float, high: float, generator: torch.Generator) -> float:
    """Return a random number."""
    drawn = torch.empty(1, device=generator.device).uniform_(low, high, generator=generator)
    return float(drawn)


def draw(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor for a spec: integers uniform in their range, floats normal, or uniform in
    a stated range, booleans even."""
    dtype, shape = dtype_of(spec.dtype), spec.shape
    stride = spec.stride or contiguous_stride(shape)
    low, high = spec.low, spec.high
    if not (dtype.is_floating_point or dtype.is_complex):
        first, last = whole_range(spec)
        kept = draw_whole_numbers(shape, spec.invariants, first, last, generator)
        if kept is not None:
            flat = torch.empty(max(span(shape, stride), 0), dtype=dtype, device=generator.device)
            whole = flat.as_strided(shape, stride)
            written = without_repeats(whole)
            written.copy_(kept[tuple(slice(size) for size in written.shape)])
            return whole
    count = max(span(shape, stride), 0)
    flat = torch.empty(count, dtype=working_dtype(dtype), device=generator.device)
    if dtype == torch.bool:
        flat.random_(0, 2, generator=generator)
        if low is not None and low == high:
            flat.fill_(low)
    elif dtype.is_floating_point or dtype.is_complex:
        draw_floats(flat, low, high, generator)
    else:
        first, last = whole_range(spec)
        flat.random_(first, last + 1, generator=generator)
    drawn = flat.to(dtype).as_strided(shape, stride)
    if dtype.is_floating_point:
        impose(drawn, spec.invariants, low, high)
    return drawn


def whole_range(spec: TensorSpec) -> tuple[int, int]:
    """Return the lowest and the highest whole number of a spec."""
    first = 0 if spec.low is None else int(spec.low)
    return first, max(first, DEFAULT_INTEGER_HIGH) if spec.high is None else int(spec.high)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that random numbers can be drawn in."""
    if dtype.is_complex:
        return torch.complex64 if dtype != torch.complex128 else dtype
    if dtype.is_floating_point:
        return torch.float64 if dtype == torch.float64 else torch.float32
    return torch.int64


def draw_floats(
    flat: torch.Tensor, low: float | None, high: float | None, generator: torch.Generator
) -> None:
    """Draw floats normally around the middle of the observed range. The deviation is a sixth of
    it, so that its ends are about three deviations out. One-signed ranges stay one-signed (a
    probability, a time step, a length) by a uniform draw. Without an observed range the draw is
    standard normal."""
    if low is None or high is None:
        flat.normal_(generator=generator)
    elif low == high:
        flat.normal_(generator=generator).mul_(abs(low) or 1.0)
    elif low >= 0 or high <= 0:
        flat.uniform_(low, high, generator=generator)
    else:
        flat.normal_((low + high) / 2, (high - low) / 6, generator=generator)


def scaled(base: InputSet, factor: float, shift: float = 0.0) -> InputSet:
    """Return float tensors times a factor plus a shift; others unchanged."""

    def again(tensor: torch.Tensor) -> torch.Tensor:
        if not is_float(tensor):
            return tensor.clone()
        return tensor.mul(factor).add(shift) if shift else tensor.mul(factor)

    return InputSet([again(t) for t in base.tensors], base.data)


class Room:
    """Memory for input sets, one segment for each runner, with the layout that all share. After
    all inputs come the initial gradients of a backward pass on each set, where some are given
    (cotangents.py)."""

    def __init__(
        self,
        sets: Sequence[InputSet],
        grads: Sequence[bool],
        dtype: str | None = None,
        cotangents: Sequence[Slot] = (),
    ):
        self.layout: list[list[Slot]] = []
        self.data = [one.data for one in sets]
        self.grads = list(grads)
        self.dtype = dtype
        end = 0
        for one in sets:
            slots, end = place([self.slot(t) for t in one.tensors], end)
            self.layout.append(slots)
        self.inputs_bytes = end
        self.cotangents: list[list[Slot]] = []
        for _ in sets if cotangents else ():
            slots, end = place(cotangents, end)
            self.cotangents.append(slots)
        self.num_bytes = end

    def slot(self, tensor: torch.Tensor) -> Slot:
        """Return the slot of a tensor in its layout. The oracle's floats are wider."""
        slot = slot_of(tensor)
        if self.dtype and tensor.is_floating_point():
            return replace(slot, dtype=self.dtype)
        if self.dtype and tensor.is_complex():
            return replace(slot, dtype="complex128")
        return slot

    def describe(self) -> tuple[LaidSet, ...]:
        """Return the description that a runner gets."""
        cotangents = self.cotangents or [[] for _ in self.layout]
        return tuple(
            LaidSet(
                slots=tuple(slots),
                data=data,
                grads=tuple(
                    grad and dtype_of(s.dtype).is_floating_point
                    for s, grad in zip(slots, self.grads, strict=True)
                ),
                cotangents=tuple(starts),
            )
            for slots, data, starts in zip(self.layout, self.data, cotangents, strict=True)
        )

    def write(self, segment: AnySegment, sets: Sequence[InputSet]) -> None:
        """Write new values at the old addresses, from outside the runner."""
        for number, one in enumerate(sets):
            self.write_one(segment.tensor, number, one)

    def write_one(self, view: Callable[[Slot], torch.Tensor], number: int, one: InputSet) -> None:
        """Write one set's values to the place of that number; `view` gives the memory of a slot."""
        for slot, tensor in zip(self.layout[number], one.tensors, strict=True):
            view(slot).copy_(tensor)

    def ranges(
        self, numbers: Sequence[int], *, inputs_alone: bool = False
    ) -> list[tuple[int, int]]:
        """Return the byte ranges to copy for the sets of those numbers. Small sets are copied
        all at once, where a copy of each would take longer."""
        if self.num_bytes <= SMALL_BYTES * len(self.layout):
            return [(0, self.inputs_bytes if inputs_alone else self.num_bytes)]
        parts = [self.layout[number] for number in numbers]
        if self.cotangents and not inputs_alone:
            parts += [self.cotangents[number] for number in numbers]
        return [
            (slots[0].offset, slots[-1].offset + size_bytes(slots[-1])) for slots in parts if slots
        ]

    def changed(self, segment: AnySegment, sets: Sequence[InputSet]) -> list[tuple[int, int]]:
        """Return numbers of the sets, and of the tensors in them, that no longer hold what was
        written."""
        numbers, pairs = [], []
        for number, (slots, one) in enumerate(zip(self.layout, sets, strict=True)):
            for index, (slot, tensor) in enumerate(zip(slots, one.tensors, strict=True)):
                numbers.append((number, index))
                pairs.append((segment.tensor(slot), tensor))
        return [one for one, same in zip(numbers, each_same_bits(pairs), strict=True) if not same]


def each_same_bits(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Return `same_bits` of each pair. On a GPU small pairs are compared at once, as each wait
    takes milliseconds with other processes."""
    num_bytes = sum(one.nbytes for one, _ in pairs)
    if num_bytes > TOGETHER_BYTES or any(one.device.type == "cpu" for one, _ in pairs):
        return [same_bits(*pair) for pair in pairs]
    return each_same_at_once(pairs)


def each_same_at_once(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Return the same with one wait for the device."""
    return as_bools([are_same(one, other).all() for one, other in pairs])


def are_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return which elements are equal, with NaN equal to NaN, on the first tensor's device."""
    other = other.to(one.device, one.dtype)
    if one.is_floating_point() and one.element_size() == 1:  # which torch does not compare
        return one.view(torch.uint8) == other.view(torch.uint8)
    same = one == other
    if one.is_floating_point() or one.is_complex():
        same |= torch.isnan(one) & torch.isnan(other)
    return same


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal, with NaN equal to NaN, on the first one's device."""
    return one.shape == other.shape and all(
        is_equal(ours, theirs) or bool(are_same(ours, theirs).all())
        for ours, theirs in zip(pieces(one), pieces(other, one.device), strict=True)
    )


def is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether all elements are equal, faster than `are_same` where it is true. torch has
    no such function for floats of a byte."""
    is_short = one.is_floating_point() and one.element_size() == 1
    return not is_short and torch.equal(one, other.to(one.dtype))
