"""Compare outputs, with an fp64 oracle of the reference where there is one.

A candidate may be off by a few times the reference's own error, or by the rounding of the dtype
where that is larger (`Allowance`). Tolerances follow the magnitude of the expected values, so that
zeros do not pass for small numbers. The magnitude is their root mean square without what masks
wrote (magnitude.py). What a mask wrote may be off by the rounding of the dtype. Where the oracle is
finite and the reference overflowed, the oracle counts. Where both are not finite, the candidate
must be non-finite in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .glance import Glance
from .magnitude import magnitude, measure, most_elements, pieces, widen


@dataclass(frozen=True)
class Allowance:
    """The parts of a budget, for the floats of some dtypes."""

    error_multiple: float
    """Multiple of the reference's own largest error."""
    relative_eps: float
    absolute_eps: float
    """Floor in units of the dtype's epsilon, relative to the element and to the output's
    magnitude."""
    no_oracle_multiple: float
    """Without an oracle the reference's own error is unknown and the floor is this much wider."""


LONG = Allowance(8.0, 16.0, 64.0, 16.0)
"""Another summation order of the same precision stays within a few times the reference's error;
TF32 or half precision is off by hundreds to thousands. The floor for float32 is 1.9e-6 and
7.6e-6, next to torch.testing's 1.3e-6 and 1e-5."""
SHORT = Allowance(4.0, 2.0, 2.0, 4.0)
"""For float16, bfloat16 and shorter. Sums are made in float32, so that hardly more than the last
rounding is off, and one epsilon is already a hundredth of a number. The floor for bfloat16 is
1.6e-2, as in torch.testing."""
SHORT_EPS = 1e-4
CAST_SHARE = 0.125
"""Share of the epsilon of autocast's dtype, relative to an output's magnitude, from which on the
reference's largest error is that of this dtype. Rounding to nearest is off by up to half of the
epsilon at the largest elements."""
LOOSE = 1e-2
"""Within this of the truth (KernelBench's tolerance) a mismatch is one of precision."""
LOOSE_EPS = 16.0
"""Most distance of the reference from its oracle where that is more than `LOOSE`, in units of
the dtype's epsilon: many layers, each rounded to bfloat16."""


@dataclass(frozen=True)
class Tolerance:
    """The allowed error of an output: `absolute + relative * |expected|`, elementwise."""

    absolute: float
    relative: float
    scale: float | None = None
    """Magnitude of the expected values, where it is known already."""
    local: torch.Tensor | None = None
    """Allowed error of each element where that is more (spread.py): of whole numbers and truth
    values too, which are exact elsewhere."""
    is_guessed: bool = False
    """Whether the reference's error is unknown, and the dtype's tolerance counts."""

    @property
    def most_absolute(self) -> float:
        """Return the allowed error of an element where that is largest."""
        return self.absolute if self.local is None else max(self.absolute, float(self.local.max()))


@dataclass(frozen=True)
class Difference:
    """The worst of an output's elements. `excess` above 1 is beyond the tolerance."""

    max_abs: float
    max_rel: float
    excess: float
    num_far: int
    """Elements that no precision explains, and of whole numbers all that differ."""
    where: str = ""

    @property
    def is_loose(self) -> bool:
        """Return whether the difference may be of precision only."""
        return self.num_far == 0


def as_bools(flags: Sequence[torch.Tensor]) -> list[bool]:
    """Return truth values that were computed on devices, with one wait for each device."""
    found = [False] * len(flags)
    for device in {flag.device for flag in flags}:
        numbers = [number for number, flag in enumerate(flags) if flag.device == device]
        values = torch.stack([flags[number] for number in numbers]).tolist()
        for number, value in zip(numbers, values, strict=True):
            found[number] = value
    return found


def is_inexact(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds floats or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def allowance(dtype: torch.dtype) -> Allowance:
    """Return the allowance for floats of that dtype."""
    return SHORT if torch.finfo(dtype).eps > SHORT_EPS else LONG


def loose(dtype: torch.dtype, cast: torch.dtype | None = None) -> float:
    """Return how far a reference of that dtype may be from its oracle, relative to the element
    and to the output's magnitude. Under autocast float32 may come from values of the dtype `cast`.
    """
    if cast is not None and dtype == torch.float32:
        dtype = cast
    return max(LOOSE, LOOSE_EPS * torch.finfo(dtype).eps)


def rounded_as(
    dtype: torch.dtype, cast: torch.dtype | None, error: float, scale: float
) -> torch.dtype:
    """Return the dtype whose rounding an output has. Under autocast that of float32 is `cast`
    where the reference is off by as much as `cast` rounds, and float32 elsewhere: a normalization
    that autocast leaves in float32 must stay in it."""
    if cast is None or dtype != torch.float32 or not scale:
        return dtype
    return cast if error >= CAST_SHARE * torch.finfo(cast).eps * scale else dtype


def rounded(
    exact: torch.Tensor, dtype: torch.dtype, cast: torch.dtype | None = None
) -> torch.Tensor:
    """Return floats as a dtype holds them; under autocast, float32 as `cast` does."""
    if cast is not None and dtype == torch.float32:
        return exact.to(cast).to(dtype)
    return exact.to(dtype)


def tolerance(
    reference: torch.Tensor,
    oracle: torch.Tensor | None,
    given: tuple[float, float] | None,
    device: torch.device | None = None,
    known: float = 0.0,
    noise: float = 0.0,
    *,
    has_spread: bool = False,
    glance: Glance | None = None,
    cast: torch.dtype | None = None,
) -> Tolerance:
    """Return the budget of one output leaf. A `glance` is at its oracle.

    `given` is the user's (atol, rtol) and takes precedence. `known` is the allowance on other
    inputs, as a share of the output's magnitude. `noise`, where there is little but rounding, is
    absolute (rounding_noise.py). With a spread the conditioning is known without an oracle. `cast`
    is autocast's dtype. The computation is on `device`, where the tensors need not be.
    """
    if given is not None:
        return Tolerance(*given)
    if not is_inexact(reference):
        return Tolerance(0.0, 0.0)
    truth = oracle if oracle is not None else reference
    if glance is not None and oracle is not None:
        scale, error = glance.root_mean_square, glance.error
    else:
        found = measure(truth, device)
        scale = found.root_mean_square
        error = 0.0 if oracle is None else largest_error(reference, oracle, device, found.below)
    dtype = rounded_as(reference.dtype, cast, max(error, known * scale), scale)
    allowed, eps = allowance(dtype), torch.finfo(dtype).eps
    if dtype == torch.float64:
        # The oracle has the same precision, and the reference may compute in float32 inside.
        eps = max(eps, 1e-14)
    is_guessed = oracle is None and not has_spread
    floor = allowed.no_oracle_multiple if is_guessed else 1.0
    absolute = max(allowed.absolute_eps * eps * floor, known) * scale
    absolute = max(absolute, allowed.error_multiple * error, noise)
    # An expected output of exact zeros has no magnitude: one rounding of a number near 1 passes.
    absolute = absolute if scale else max(absolute, eps)
    relative = allowed.relative_eps * eps * floor
    return Tolerance(absolute, relative, scale, is_guessed=is_guessed)


def largest_error(
    one: torch.Tensor,
    other: torch.Tensor,
    device: torch.device | None = None,
    below: float = math.inf,
) -> float:
    """Return the largest absolute difference where it is finite, among elements whose `other` is
    below a size; 0 where there is none."""
    largest = 0.0
    for ours, exact in zip(pieces(one, device), pieces(other, device), strict=True):
        truth = widen(exact)
        error = (widen(ours) - truth).abs()
        if math.isfinite(below):
            error = error[truth.abs() < below]
        most = float(error.max()) if error.numel() else 0.0
        if not math.isfinite(most):
            error = error[torch.isfinite(error)]
            most = float(error.max()) if error.numel() else 0.0
        largest = max(largest, most)
    return largest


def is_near(
    one: torch.Tensor,
    other: torch.Tensor,
    near: float,
    device: torch.device | None = None,
    glance: Glance | None = None,
) -> bool:
    """Return whether all floats of `one` are within `near` times the magnitude of `other`. Then no
    element is far (`Difference.num_far`), which takes much longer to count. False where one is
    not finite."""
    if glance is not None:
        return glance.error <= near * glance.root_mean_square
    if not is_inexact(one) or not one.numel():
        return False
    gaps = [
        (widen(ours) - widen(theirs)).abs().max()
        for ours, theirs in zip(pieces(one, device), pieces(other, device), strict=True)
    ]
    largest = float(torch.stack(gaps).max())
    return math.isfinite(largest) and largest <= near * magnitude(other, device)


def difference(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    oracle: torch.Tensor | None,
    budget: Tolerance,
    device: torch.device | None = None,
    near: float = LOOSE,
) -> Difference:
    """Compare one output leaf of equal shape, on `device`, where the tensors need not be. An
    element that is off by more than `near` is far."""
    if reference.numel() == 0:
        return Difference(0.0, 0.0, 0.0, 0)
    scale = budget.scale if is_inexact(reference) else 0.0
    if scale is None:
        scale = magnitude(reference if oracle is None else oracle, device)
    oracles = itertools.repeat(None) if oracle is None else pieces(oracle, device)
    local = itertools.repeat(None) if budget.local is None else pieces(budget.local, device)
    found = [
        piece_difference(*parts, budget, scale, near)
        for parts in zip(
            pieces(candidate, device),
            pieces(reference, device),
            oracles,
            local,
            strict=False,
        )
    ]
    worst = max(range(len(found)), key=lambda number: found[number].excess)
    where = found[worst].where
    if len(found) > 1 and where:
        flat = worst * most_elements(reference, device) + int(where.strip("[]"))
        where = str([int(i) for i in index_of(flat, reference.shape)])
    return Difference(
        max(one.max_abs for one in found),
        max(one.max_rel for one in found),
        found[worst].excess,
        sum(one.num_far for one in found),
        where,
    )


def index_of(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index of an element by its number in row-major order."""
    index = []
    for size in reversed(shape):
        flat, place_in = divmod(flat, size)
        index.append(place_in)
    return index[::-1]


def piece_difference(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    oracle: torch.Tensor | None,
    local: torch.Tensor | None,
    budget: Tolerance,
    scale: float,
    near: float,
) -> Difference:
    """Compare some elements; `scale` is the magnitude of all. A difference within the budget has
    no place, and is not far."""
    if not is_inexact(reference):
        return exact_difference(candidate, reference, local)
    scale = max(scale, 1e-300)
    got, truth = widen(candidate), widen(reference if oracle is None else oracle)
    gap, size = (got - truth).abs(), truth.abs()
    ratio = gap / allowed_at(size, budget, local)
    # There is one wait for the device: with other processes each wait takes milliseconds.
    largest = [gap.max(), ratio.max(), (gap / size.clamp_min(scale)).max()]
    max_abs, excess, max_rel = torch.stack(largest).tolist()
    if not math.isfinite(max_abs):
        said = widen(reference)
        return difference_beside_infinities(got, said, truth, local, budget, scale, near)
    if excess <= 1:
        return Difference(max_abs, max_rel, excess, 0)
    num_far = int((gap > near * (size + scale)).sum())
    return Difference(max_abs, max_rel, excess, num_far, place(ratio == excess))


def allowed_at(size: torch.Tensor, budget: Tolerance, local: torch.Tensor | None) -> torch.Tensor:
    """Return the allowed error of elements of that size."""
    allowed = (budget.absolute + budget.relative * size).clamp_min_(1e-300)
    return allowed if local is None else torch.maximum(allowed, widen(local))


def exact_difference(
    candidate: torch.Tensor, reference: torch.Tensor, ties: torch.Tensor | None
) -> Difference:
    """Compare whole numbers and truth values. At `ties` they may differ by as much."""
    wrong = candidate != reference
    if ties is not None and bool(wrong.any()):
        wrong &= (widen(candidate) - widen(reference)).abs() > ties
    count = int(wrong.sum())
    gap = float((widen(candidate) - widen(reference)).abs().max()) if count else 0.0
    return Difference(gap, gap, float("inf") if count else 0.0, count, place(wrong))


def difference_beside_infinities(
    got: torch.Tensor,
    said: torch.Tensor,
    oracle: torch.Tensor,
    local: torch.Tensor | None,
    budget: Tolerance,
    scale: float,
    near: float,
) -> Difference:
    """Compare where some of the elements are not finite. Where the oracle has no value, the
    reference's answer (`said`) counts."""
    truth = torch.where(finite(oracle), oracle, said)
    both = finite(truth) & finite(got)
    gap = torch.where(both, (got - truth).abs(), 0.0)
    size = truth.abs().nan_to_num(0.0, 0.0, 0.0)
    same_infinity = torch.where(torch.isnan(truth.abs()), torch.isnan(got.abs()), got == truth)
    broken = ~both & ~same_infinity
    is_broken = bool(broken.any())
    ratio = gap / allowed_at(size, budget, local)
    excess = float("inf") if is_broken else float(ratio.max())
    max_abs, max_rel = float(gap.max()), float((gap / size.clamp_min(scale)).max())
    if excess <= 1:
        return Difference(max_abs, max_rel, excess, 0)
    num_far = int((broken | (gap > near * (size + scale))).sum())
    return Difference(
        max_abs, max_rel, excess, num_far, place(broken if is_broken else ratio == excess)
    )


def finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.isfinite(tensor.abs()) if tensor.is_complex() else torch.isfinite(tensor)


def place(mask: torch.Tensor) -> str:
    """Return the index of the first true element, as `[2, 17]`."""
    if mask.dim() == 0 or not bool(mask.any()):
        return ""
    return str(mask.nonzero()[0].tolist())
