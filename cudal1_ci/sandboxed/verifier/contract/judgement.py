"""Compare what a use of a candidate came to with what the same use of the reference did."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch

from ...runner.sharing import WRITTEN
from ...wire.runner import WIDE_UNITS
from ...wire.tensors import OutputSlot
from ..cases import Case
from ..compare import Difference, difference, tolerance
from ..spread import MOST_JUMPS, deviation, most_of, share_of, with_spread, with_wide
from ..ties import Ties, extend, is_whole, with_ties

MOST_SHOWN = 160
OUTPUT = re.compile(r"output (\d+)\b")
GROWTH = {
    "bytes of tensors": 1.0,
    "memory blocks of Python": 0.9,
    "items in containers": 0.9,
    "open files": 0.9,
    "bytes of C memory": 64.0,
}
"""Growth of each call, beyond the reference's, that is a leak."""
PEAK_MULTIPLE, PEAK_BYTES = 4.0, 2**28
"""A peak is broken beyond both: a multiple of the reference's, and so much more."""
MOST_DEVIATIONS, MOST_RATIO, MOST_ZEROS = 6.0, 1.3, 0.1
"""How far moments of random outputs may be apart."""


@dataclass
class Result:
    """What a use came to."""

    facts: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    slots: tuple[OutputSlot, ...]
    tensors: list[torch.Tensor]
    used_rng: bool
    growth: tuple[float, ...]
    took_s: float = 0.0
    varies: frozenset[int] = frozenset()
    """Tensors that are others under another seed."""

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


Oracle = Callable[[], Result | None]
"""Repeats the use with the reference in float64, where it runs so."""
Rounded = Callable[[int], Sequence[Result]]
"""Repeats the use with the reference a number of times, under random rounding by some units
(spread.py)."""
Near = Callable[[], Sequence[Result]]
"""Repeats it on inputs that differ by rounding (ties.py)."""
UNSETTLED = "; rounding alone moves more of the reference's"


def contradiction(
    case: Case,
    recipe: str,
    ours: Result,
    theirs: Result,
    oracle: Oracle,
    rounded: Rounded,
    near: Near,
    *,
    has_odd: bool = False,
) -> str | None:
    """Return what is broken; None where the line is held. The inputs of a use that `has_odd` ones
    hold NaN or infinities."""
    if recipe == "memory":
        return kept_memory(ours.growth, theirs.growth)
    if recipe == "peak":
        return peak_memory(ours.growth, theirs.growth)
    return different_facts(ours, theirs) or different_values(
        case, ours, theirs, oracle, rounded, near, has_odd=has_odd
    )


def filled(ours: Result, theirs: Result, finite: Sequence[Result]) -> Result | None:
    """Return what the reference would come to, if NaN and infinities did not spread to elements
    that do not depend on them: which are finite of the candidate, and of the reference the same
    with any finite numbers in their place. None where another element is finite too."""
    alike = [ours.facts, ours.names, ours.slots]
    if ours.used_rng or not finite or any([r.facts, r.names, r.slots] != alike for r in finite):
        return None
    tensors = []
    for number, (mine, its) in enumerate(zip(ours.tensors, theirs.tensors, strict=True)):
        if not (mine.is_floating_point() or mine.is_complex()):
            tensors.append(mine)
            continue
        places = ~torch.isfinite(mine) & torch.isfinite(its.to(mine.device))
        first, *others = (result.tensors[number][places] for result in finite)
        if not torch.isfinite(first).all() or not all(torch.equal(first, one) for one in others):
            return None
        tensors.append(mine.masked_scatter(places, first))
    return replace(ours, tensors=tensors)


def kept_memory(ours: tuple[float, ...], theirs: tuple[float, ...]) -> str | None:
    """Return which memory grows with every call."""
    if len(ours) != len(GROWTH) or len(theirs) != len(GROWTH):
        return "it reports another number of figures"
    for (word, limit), mine, its in zip(GROWTH.items(), ours, theirs, strict=True):
        if its - max(mine, 0.0) > limit:
            return f"each call keeps {its:,.0f} {word}; of the reference {max(mine, 0.0):,.0f}"
    return None


def peak_memory(ours: tuple[float, ...], theirs: tuple[float, ...]) -> str | None:
    if len(ours) != 1 or len(theirs) != 1:
        return "it reports another number of figures"
    if theirs[0] > PEAK_MULTIPLE * ours[0] and theirs[0] > ours[0] + PEAK_BYTES:
        return f"a call takes {theirs[0]:,.0f} bytes; of the reference {ours[0]:,.0f}"
    return None


def different_facts(ours: Result, theirs: Result) -> str | None:
    """Return the first fact, shape, dtype or device that differs."""
    for mine, its in zip_longest(ours.facts, theirs.facts):
        if mine is None:
            return f"it has a {its[0]}, which the reference has not"
        if its is None or mine[0] != its[0]:
            return f"it has no {mine[0]}"
        if mine[1] != its[1] and not (its[1] == "[]" and its[0].startswith(WRITTEN)):
            return f"{mine[0]}: expected {mine[1][:MOST_SHOWN]}, got {its[1][:MOST_SHOWN]}"
    if ours.names != theirs.names:
        return f"expected {list(ours.names)[:8]}, got {list(theirs.names)[:8]}"
    for name, mine, its in zip(ours.names, ours.slots, theirs.slots, strict=True):
        if mine.shape != its.shape:
            return f"{name}: expected shape {list(mine.shape)}, got {list(its.shape)}"
        if mine.dtype != its.dtype:
            return f"{name}: expected {mine.dtype}, got {its.dtype}"
        if mine.device != its.device:
            return f"{name}: expected on {mine.device}, got on {its.device}"
    return None


def different_values(
    case: Case,
    ours: Result,
    theirs: Result,
    oracle: Oracle,
    rounded: Rounded,
    near: Near,
    *,
    has_odd: bool,
) -> str | None:
    """Return the tensor that is furthest off. A difference beyond the usual tolerance is compared
    again with an oracle, which knows the reference's own error on these inputs, and where few
    elements are off with what rounding alone does to the reference."""
    exact: Result | None = None
    calls: dict[int, Sequence[Result]] = {}
    has_asked = False

    def moved(number: int, num_units: int) -> list[torch.Tensor]:
        if num_units not in calls:
            calls[num_units] = rounded(num_units)
        return [one.tensors[number] for one in calls[num_units]]

    for number, (name, mine, its) in enumerate(
        zip(ours.names, ours.tensors, theirs.tensors, strict=True)
    ):
        if number in ours.varies:
            found = different_moments(mine, its)
            if found:
                return f"{name}: {found}"
            continue
        is_unsettled = False
        odd = different_places(mine, its, has_odd=has_odd)
        if odd:
            return f"{name}: {odd}"
        if not has_odd and mine.is_floating_point():
            its = torch.where(torch.isfinite(mine), its, torch.zeros_like(its))
        known, noise = allowance_of(case, name, mine.dtype)
        far = case.difference(finite(its), finite(mine), known, noise)
        if far.excess <= 1 or (far.is_loose and case.precision != "strict"):
            continue
        if not is_whole(mine):
            if not has_asked:
                exact, has_asked = oracle(), True
            again = with_oracle(case, mine, its, exact, number, known, noise)
            if again is not None and again.excess <= 1:
                continue
            if far.num_far <= MOST_JUMPS * mine.numel():
                nearby = moved(number, 1)
                if is_explained(case, mine, its, nearby):
                    continue
                if is_explained(case, mine, its, nearby, moved(number, WIDE_UNITS)):
                    continue
                is_unsettled = 0 < far.num_far <= num_jumps(case, mine, nearby)
        settled = finite(with_near_ties(ours, theirs, near())[number])
        if case.difference(settled, finite(mine), known, noise).excess > 1:
            place = far.where or "its only element"
            rest = UNSETTLED if is_unsettled else ""
            return f"{name} is off by {far.max_abs:.3g} at {place}{rest}"
    return None


def with_near_ties(
    ours: Result, theirs: Result, nearby: Sequence[Result]
) -> Sequence[torch.Tensor]:
    """Return the candidate's tensors with the reference's choice where rounding of the inputs
    decides."""
    ties: dict[int, Ties] = {}
    sizes = [size for tensor in ours.tensors for size in tensor.shape]
    for one in nearby:
        extend(ties, ours.tensors, one.tensors, max(sizes, default=1) - 1, is_shaken=True)
    return with_ties(ties, theirs.tensors, ours.tensors)


def is_explained(
    case: Case,
    mine: torch.Tensor,
    its: torch.Tensor,
    nearby: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor] = (),
) -> bool:
    """Return whether floats are off by no more than what rounding does to the reference, by one
    unit and in `wide` by more."""
    found = largest_deviation(mine, nearby)
    if found is None:
        return False
    truth, device = finite(mine), case.accelerator.device
    most = most_of(truth, None, mine.dtype, found, case.cast)
    found = with_wide(found, largest_deviation(mine, wide), most)
    if share_of(found > most) > MOST_JUMPS:
        return False
    budget = tolerance(truth, None, case.given, device, has_spread=True, cast=case.cast)
    budget = with_spread(budget, mine.dtype, truth, found, most)
    return difference(finite(its), truth, None, budget, device).excess <= 1


def num_jumps(case: Case, mine: torch.Tensor, nearby: Sequence[torch.Tensor]) -> int:
    """Return how many elements rounding alone moves by more than what counts as precision."""
    found = largest_deviation(mine, nearby)
    if found is None:
        return 0
    return int((found > most_of(finite(mine), None, mine.dtype, found, case.cast)).sum())


def largest_deviation(mine: torch.Tensor, nearby: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return by how much each element is off in some call; None where that is not known."""
    if not nearby or not mine.is_floating_point() or any(one.shape != mine.shape for one in nearby):
        return None
    return torch.stack([deviation(mine, one) for one in nearby]).amax(0)


def with_oracle(
    case: Case,
    mine: torch.Tensor,
    its: torch.Tensor,
    exact: Result | None,
    number: int,
    known: float,
    noise: float,
) -> Difference | None:
    """Return the difference by the oracle's budget; None where there is no oracle for it."""
    if exact is None or number >= len(exact.tensors) or not mine.is_floating_point():
        return None
    truth = exact.tensors[number]
    if truth.shape != mine.shape:
        return None
    device = case.accelerator.device
    truth, mine = finite(truth), finite(mine)
    budget = tolerance(mine, truth, case.given, device, known, noise, cast=case.cast)
    return difference(finite(its), mine, truth, budget, device)


def allowance_of(case: Case, name: str, dtype: torch.dtype) -> tuple[float, float]:
    """Return what is known of an output's error, in this call or a later one ("output 0 of the
    next call"), where it has the dtype of the workload's."""
    found = OUTPUT.match(name)
    place = int(found[1]) if found else len(case.known)
    if place >= len(case.known) or case.expected is None:
        return 0.0, 0.0
    if case.expected.outputs[0][place].dtype != dtype:
        return 0.0, 0.0
    return case.known[place], case.noise.get(place, 0.0)


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros where it is not finite."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return torch.where(torch.isfinite(tensor), tensor, torch.zeros_like(tensor))


def different_places(mine: torch.Tensor, its: torch.Tensor, *, has_odd: bool) -> str | None:
    """Return where one is finite and the other is not. NaN and infinities count as one: which of
    them a sum comes to depends on its order. A reference that overflows on finite inputs asks for
    no overflow of others."""
    if not (mine.is_floating_point() or mine.is_complex()):
        return None
    wanted, got = torch.isfinite(mine), torch.isfinite(its.to(mine.device))
    if bool((wanted == got).all()):
        return None
    swallowed = int((~wanted & got).sum())
    if swallowed and has_odd:
        return f"{swallowed} elements are finite where the reference's are NaN or infinite"
    lost = int((wanted & ~got).sum())
    return f"{lost} elements are not finite where the reference's are" if lost else None


def different_moments(mine: torch.Tensor, its: torch.Tensor) -> str | None:
    """Return how random numbers differ in distribution: mean, deviation, share of zeros."""
    one, other = finite(mine.double()).flatten(), finite(its.to(mine.device).double()).flatten()
    count = one.numel()
    if count < 64:
        return None
    spread = float(one.std()) or float(other.std())
    if not spread:
        return None
    apart = abs(float(one.mean()) - float(other.mean()))
    if apart > MOST_DEVIATIONS * spread * (2 / count) ** 0.5 + 0.02 * spread:
        return f"its mean is off by {apart:.3g}"
    ratio = (float(other.std()) or 1e-30) / (float(one.std()) or 1e-30)
    if not 1 / MOST_RATIO < ratio < MOST_RATIO:
        return f"its deviation is {ratio:.3g} times the reference's"
    zeros = abs(float((one == 0).double().mean()) - float((other == 0).double().mean()))
    if zeros > MOST_ZEROS:
        return f"the share of zeros is off by {zeros:.2g}"
    return None
