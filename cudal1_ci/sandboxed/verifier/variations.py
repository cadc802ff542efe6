"""Make inputs that a workload does not state, on which a replacement must be right too."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import torch

from ..timing.new_inputs import change_few
from .compare import index_of
from .inputs import InputSet, Source, scaled
from .magnitude import root_mean_square

FEWEST_TRIALS = 3
EXCHANGED = "exchanged"
"""The first set again, with a few elements exchanged. A program that keeps answers by less than
all of the input has kept one for it. Where a reference rejects it, its whole numbers stay in
place in timed rounds too."""
MOVED = "moved"
"""The first set with its whole numbers in other places of their rows, as in timed rounds. Outputs
as long as some of them say are then of other lengths."""
NUM_ODD, OUTLIER = 3, 300.0
"""Number of elements of an input that are unlike the others, and their size in units of its root
mean square: beyond what is clamped in practice, within what float16 holds of drawn numbers."""
ALONE = 100.0
"""Size of the only element that is not zero, in the same units: in float16 its square is a
number, and so is the mean of a million of them."""
ON_NAN = re.compile(r"\bnan(_to_num|mean|sum|median|quantile)?\b|\bis(nan|finite|inf)\b")
"""Words in a reference's text that handle such values."""


def variations(
    source: Source,
    generator: torch.Generator,
    budget_bytes: int,
    is_training: bool = False,
    has_nan: bool = False,
) -> list[tuple[str, InputSet]]:
    """Return named sets for the correctness trials.

    Some are what the workload states. Others it does not promise: another scale and sign, rows of
    different sizes, large values in many places, in few or in one, zeros, and NaN for a reference
    that `has_nan` in its text. The budget limits their number, but the first `FEWEST_TRIALS` are
    always made. The caller drops sets on which the reference itself fails, and all but those first
    where it is slow.
    """
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
        # A slow reference has it too: it decides whether whole numbers change places in timed
        # rounds. There an answer that is kept by some of them would save all work.
        makers[MOVED] = lambda: moved(source, base)
        makers = {name: makers[name] for name in ["drawn 0", "drawn 1", EXCHANGED, MOVED, *makers]}
    if not any(t.is_floating_point() or t.is_complex() for t in base.tensors):
        makers = {
            name: make
            for name, make in makers.items()
            if name.startswith("drawn") or (name in (EXCHANGED, MOVED) and any(source.moves))
        }
    elif not any(t.numel() > 1 for t in base.tensors):
        makers.pop(EXCHANGED)
    if is_training:
        # Gradients of saturated functions are differences of large numbers: they are all rounding
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
            source.impose(one.tensors)
    return found


def exchanged(source: Source, base: InputSet, rng: random.Random) -> InputSet:
    """Return the same set with a few elements exchanged."""
    changed = InputSet([tensor.clone() for tensor in base.tensors], base.data)
    change_few(source, changed.tensors, rng)
    return changed


def moved(source: Source, base: InputSet) -> InputSet:
    """Return the same set with whole numbers moved by one place."""
    return InputSet(
        [
            tensor.roll(1, -1) if moves and tensor.dim() else tensor.clone()
            for tensor, moves in zip(base.tensors, source.moves, strict=True)
        ],
        base.data,
    )


def remade(
    base: InputSet,
    generator: torch.Generator,
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
) -> InputSet:
    """Change float tensors; others stay unchanged."""
    tensors = [
        change(t, generator).to(t.dtype) if t.is_floating_point() and t.numel() else t.clone()
        for t in base.tensors
    ]
    return InputSet(tensors, base.data)


def spiked(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return small values with one large one in fifty, which a sum over many hides and a maximum
    finds."""
    chance = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    return torch.where(chance < 0.02, tensor * 30, tensor * 0.03)


def with_outliers(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return drawn values with a few outliers, which a look at some of the elements does not
    find."""
    return put_anywhere(tensor, OUTLIER * (root_mean_square(tensor) or 1.0), generator)


def one_alone(base: InputSet, generator: torch.Generator) -> InputSet:
    """Return zeros except for one element, in the same place of all tensors of a shape. A
    program that leaves out a part of a sum, and scales the rest, returns too much here or
    nothing. In a short float the mean of any half of the elements is right on all inputs with
    similar elements."""
    places: dict[torch.Size, int] = {}

    def changed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if tensor.shape not in places:
            drawn = torch.rand((), generator=generator, device=tensor.device, dtype=torch.double)
            places[tensor.shape] = int(float(drawn) * tensor.numel())
        size, sign = torch.rand(2, generator=generator, device=tensor.device).tolist()
        value = ALONE * (root_mean_square(tensor) or 1.0) * (1 + size)
        alone = torch.zeros_like(tensor)
        signed = held(value if sign < 0.5 else -value, tensor.dtype)
        alone[tuple(index_of(places[tensor.shape], tensor.shape))] = signed
        return alone

    return remade(base, generator, changed)


def with_nan(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return drawn values with a few NaN."""
    return put_anywhere(tensor, math.nan, generator)


def put_anywhere(tensor: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    count = tensor.numel()
    is_odd = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    is_odd[torch.randint(0, count, (NUM_ODD,), generator=generator, device=tensor.device)] = True
    changed = tensor.clone()  # in its own layout, which `where` and `masked_fill` do not promise
    changed[is_odd.reshape(tensor.shape)] = held(value, tensor.dtype)
    return changed


def held(value: float, dtype: torch.dtype) -> float:
    """Return the nearest number that a type holds: inputs may be as large as that, as scores are
    where they are masked."""
    most = torch.finfo(dtype).max
    return value if math.isnan(value) else min(max(value, -most), most)


def uneven(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG001
    """Return rows of very different sizes, so that statistics of one row do not fit the next."""
    if tensor.dim() == 0:
        return tensor.clone()
    rows = torch.arange(tensor.shape[0], device=tensor.device)
    sizes = torch.exp2((rows % 9 - 4).double())
    return tensor * sizes.reshape(-1, *[1] * (tensor.dim() - 1)).to(tensor.dtype)


def zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return values that every precision holds exactly. A difference is then not rounding."""
    return torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device)


def tail_only(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:  # noqa: ARG001
    """Return zeros except at the end of the last dimension, which a shortened loop never reads."""
    if tensor.dim() == 0:
        return tensor.clone()
    start = tensor.shape[-1] - max(1, tensor.shape[-1] // 16)
    changed = torch.zeros_like(tensor)
    changed[..., start:] = tensor[..., start:]
    return changed


def another_batch(base: InputSet) -> InputSet | None:
    """Return the same set with fewer rows, where all tensors have as many."""
    sizes = {t.shape[0] if t.dim() else 0 for t in base.tensors}
    if len(sizes) != 1 or min(sizes) < 2:
        return None
    count = min(sizes)
    fewer = count - 1 if count < 8 else count // 2 + 1
    return InputSet([t[:fewer].clone() for t in base.tensors], base.data)
