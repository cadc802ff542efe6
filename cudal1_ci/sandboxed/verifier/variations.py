"""Inputs that a workload does not state, on which a drop-in replacement must be right as well."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import torch

from ..timing.new_inputs import change_few
from .compare import index_of
from .inputs import InputSet, Source, put_in_order, scaled
from .magnitude import root_mean_square

FEWEST_TRIALS = 3
EXCHANGED = "exchanged"
"""The first set again, but for a few elements that change places: who keeps answers by less than
all of the input has kept one for it. Where a reference does not take that, its whole numbers stay
where they are in timed rounds too."""
NUM_ODD, OUTLIER = 3, 300.0
"""Elements of an input that are unlike the others, and their size in units of its root mean square:
beyond what is clamped in practice, within what float16 holds of drawn numbers."""
ALONE = 100.0
"""Size of the only element that is not zero, in the same units: in float16 its square is a number,
and so is the mean of a million of them."""
ON_NAN = re.compile(r"\bnan(_to_num|mean|sum|median|quantile)?\b|\bis(nan|finite|inf)\b")
"""What a reference's text has that does something about them."""


def variations(
    source: Source,
    generator: torch.Generator,
    budget_bytes: int,
    is_training: bool = False,
    has_nan: bool = False,
) -> list[tuple[str, InputSet]]:
    """Named sets for the correctness trials: what the workload states, and what it does not
    promise: another scale and sign, rows of different sizes, large values in many places, in few
    or in one, zeros, and for a reference that `has_nan` in its text NaN. As many as the budget
    allows, the first `FEWEST_TRIALS` always. Sets on which the reference itself fails are dropped
    by the caller, all but those first where it is slow."""
    base = source.draw(0, generator)
    makers: dict[str, Callable[[], InputSet]] = {
        "drawn 0": lambda: base,
        "drawn 1": lambda: source.draw(1, generator),
        "shifted": lambda: scaled(base, -1.25, 0.5),
        EXCHANGED: lambda: exchanged(source, base, random.Random(generator.initial_seed())),
        "drawn 2": lambda: source.draw(2, generator),
        "large": lambda: scaled(base, 8.0),
        "spikes": lambda: remade(base, generator, spiked),
        "outliers": lambda: remade(base, generator, with_outliers),
        "one alone": lambda: one_alone(base, generator),
        "not a number": lambda: remade(base, generator, with_nan),
        "uneven rows": lambda: remade(base, generator, uneven),
        "zeros and ones": lambda: remade(base, generator, zeros_and_ones),
        "tail only": lambda: remade(base, generator, tail_only),
        "small and negative": lambda: scaled(base, -0.01),
        "tiny": lambda: scaled(base, 1e-4),
        "huge": lambda: scaled(base, 200.0),
        "zeros": lambda: scaled(base, 0.0),
    }
    if any(source.moves):
        # Among those that a slow reference has too: on it depends whether whole numbers change
        # places in timed rounds, where an answer that is kept by some of them would save all.
        makers = {name: makers[name] for name in ["drawn 0", "drawn 1", EXCHANGED, *makers]}
    if not any(t.is_floating_point() or t.is_complex() for t in base.tensors):
        makers = {
            name: make
            for name, make in makers.items()
            if name.startswith("drawn") or (name == EXCHANGED and any(source.moves))
        }
    elif not any(t.numel() > 1 for t in base.tensors):
        makers.pop(EXCHANGED)
    if is_training:
        # Gradients of saturated functions are differences of large numbers: rounding is all of them
        # (of attention's key bias, whose gradient is 0), and an honest order of sums is far off.
        makers.pop("huge", None)
        makers.pop("outliers", None)
        makers.pop("one alone", None)
    if not has_nan:
        makers.pop("not a number", None)
    set_bytes = sum(t.nbytes for t in base.tensors)
    count = max(FEWEST_TRIALS, min(len(makers), budget_bytes // (set_bytes + 1)))
    found = [(name, make()) for name, make in list(makers.items())[:count]]
    for name, one in found:
        if not name.startswith("drawn"):
            put_in_order(one.tensors, source.orders)
    return found


def exchanged(source: Source, base: InputSet, rng: random.Random) -> InputSet:
    """The same but for a few elements."""
    changed = InputSet([tensor.clone() for tensor in base.tensors], base.data)
    change_few(source, changed.tensors, rng)
    return changed


def remade(
    base: InputSet,
    generator: torch.Generator,
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
) -> InputSet:
    """Float tensors changed, others as they are."""
    tensors = [
        change(t, generator).to(t.dtype) if t.is_floating_point() and t.numel() else t.clone()
        for t in base.tensors
    ]
    return InputSet(tensors, base.data)


def spiked(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Small values with a large one in fifty: what a sum over many hides, or a maximum finds."""
    chance = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    return torch.where(chance < 0.02, tensor * 30, tensor * 0.03)


def with_outliers(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Drawn values, and among them a few that no glance at some of the elements finds."""
    return put_anywhere(tensor, OUTLIER * (root_mean_square(tensor) or 1.0), generator)


def one_alone(base: InputSet, generator: torch.Generator) -> InputSet:
    """Zeros but for one element, in the same place of all tensors of a shape. Who leaves a part of
    a sum out, and makes up for it, returns too much here or nothing: in a short float the mean of
    any half of the elements is right on all inputs whose elements are alike."""
    places: dict[torch.Size, int] = {}

    def changed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if tensor.shape not in places:
            drawn = torch.rand((), generator=generator, device=tensor.device, dtype=torch.double)
            places[tensor.shape] = int(float(drawn) * tensor.numel())
        size, sign = torch.rand(2, generator=generator, device=tensor.device).tolist()
        value = ALONE * (root_mean_square(tensor) or 1.0) * (1 + size)
        alone = torch.zeros_like(tensor)
        alone[tuple(index_of(places[tensor.shape], tensor.shape))] = value if sign < 0.5 else -value
        return alone

    return remade(base, generator, changed)


def with_nan(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Drawn values, and a few that are none."""
    return put_anywhere(tensor, math.nan, generator)


def put_anywhere(tensor: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    count = tensor.numel()
    is_odd = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    is_odd[torch.randint(0, count, (NUM_ODD,), generator=generator, device=tensor.device)] = True
    changed = tensor.clone()  # laid out as it is, which `where` and `masked_fill` do not promise
    changed[is_odd.reshape(tensor.shape)] = value
    return changed


def uneven(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG001
    """Rows of very different sizes, so that statistics of one row do not fit the next."""
    if tensor.dim() == 0:
        return tensor.clone()
    rows = torch.arange(tensor.shape[0], device=tensor.device)
    sizes = torch.exp2((rows % 9 - 4).double())
    return tensor * sizes.reshape(-1, *[1] * (tensor.dim() - 1)).to(tensor.dtype)


def zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values that every precision holds exactly: what is off then is not rounding."""
    return torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device)


def tail_only(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG001
    """All that is not zero is at the end of the last dimension, where a cut loop never looks."""
    if tensor.dim() == 0:
        return tensor.clone()
    start = tensor.shape[-1] - max(1, tensor.shape[-1] // 16)
    changed = torch.zeros_like(tensor)
    changed[..., start:] = tensor[..., start:]
    return changed


def another_batch(base: InputSet) -> InputSet | None:
    """The same with fewer rows, where all tensors have as many."""
    sizes = {t.shape[0] if t.dim() else 0 for t in base.tensors}
    if len(sizes) != 1 or min(sizes) < 2:
        return None
    count = min(sizes)
    fewer = count - 1 if count < 8 else count // 2 + 1
    return InputSet([t[:fewer].clone() for t in base.tensors], base.data)
