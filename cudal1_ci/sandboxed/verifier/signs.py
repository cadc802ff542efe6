"""Allow for signs of vectors, where the reference's own answer is one of several.

No library promises the sign of an eigenvector or of a pair of singular vectors. Another one is
right where the reference's output turns around too, when the vectors of its decompositions are
turned around at random (runner/sign_flips.py). A reference that makes its signs definite does not
turn. Outputs that turn together (both factors of a decomposition) must do so in a candidate.

This is learned when a candidate is off, and counts from then on in trials and in timed calls.
Inputs for which the vectors themselves are not definite (all zeros, equal singular values) are
then left out: what the reference returns for a nearby input is another answer there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..wire.runner import TurnSigns
from .cases import Answer, Case, Limits
from .compare import LOOSE, Tolerance, allowance, difference, largest_error
from .magnitude import widen
from .near_inputs import shaken

NUM_TURNS = 3
"""Calls with vectors turned at random. Two of eight vectors turn together by chance in one of
2^16 of them."""
Outputs = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Vectors:
    """An output that consists of vectors without a definite sign."""

    dims: tuple[int, ...]
    """Dimensions along which a vector runs; the others number the vectors."""
    group: int
    """Outputs of the same group turn together."""


def learn_signs(case: Case, template: Template, limits: Limits) -> bool:
    """Learn which outputs are vectors without a sign. Return whether there are any."""
    if case.signs is None:
        try:
            case.signs, unsettled = learn(case, template, limits)
            case.unsettled |= unsettled
        except RunnerFailure:
            case.signs = {}
    return bool(case.signs)


def learn(
    case: Case, template: Template, limits: Limits
) -> tuple[dict[int, Vectors], frozenset[int]]:
    """Return the outputs, and the trials whose vectors are not definite. Raises RunnerFailure."""
    assert case.expected is not None
    sets = [one for _, one in case.trials]
    generator = torch.Generator(case.accelerator.device).manual_seed(case.seed)
    with case.runner(template, case.program, limits) as runner:

        def answer(seed: int | None, is_shaken: bool) -> Answer:
            if case.state_slots:
                case.load_state(runner, case.state, limits)
            runner.ask(TurnSigns(seed=seed), limits.call_s)
            given = [shaken(one, generator, case.cast) for one in sets] if is_shaken else sets
            return case.answer(runner, limits, sets=given)

        turned = [answer(case.seed + call, False) for call in range(NUM_TURNS)]
        found = vectors_of(case, turned)
        if not found:
            return {}, frozenset()
        nearby = [answer(None, True) for _ in range(NUM_TURNS)]
    numbers = [
        number
        for number, expected in enumerate(case.expected.outputs)
        if not all(
            is_near(case, aligned(found, one.outputs[number], expected), expected) for one in nearby
        )
    ]
    if any(case.trials[number][0].startswith("drawn") for number in numbers):
        return {}, frozenset()
    for number, leaf in itertools.product(range(len(sets)), found):
        widen_budget(
            case,
            number,
            leaf,
            [
                aligned(found, one.outputs[number], case.expected.outputs[number])[leaf]
                for one in nearby
            ],
        )
    return found, frozenset(numbers)


def widen_budget(case: Case, number: int, leaf: int, nearby: Outputs) -> None:
    """Allow for the conditioning of vectors: they move with nearby inputs, where the gap to
    the next value is small."""
    assert case.expected is not None
    expected = case.expected.outputs[number][leaf]
    moved = max(largest_error(one, expected, case.accelerator.device) for one in nearby)
    budget = case.tolerances[number][leaf]
    least = allowance(expected.dtype).error_multiple * moved
    if case.given is None:
        absolute = max(budget.absolute, least)
        case.tolerances[number][leaf] = replace(budget, absolute=absolute)


def words_on_signs(case: Case, got: Outputs, expected: Outputs, leaf: int) -> str:
    """Return what to say of an output that is off by the signs of its vectors only."""
    budget = Tolerance(0.0, LOOSE)
    if leaf >= len(got) or directions(case, [(expected[leaf], got[leaf], budget)]) is None:
        return ""
    return (
        "; it is right but for the signs of its vectors, and the reference's do not change with "
        "those of its decomposition: return them with the reference's signs"
    )


def is_near(case: Case, got: Outputs, expected: Outputs) -> bool:
    """Return whether outputs differ by no more than precision explains."""
    return all(
        ours.shape == theirs.shape
        and (case.difference(theirs, ours).is_loose or case.difference(theirs, ours).excess <= 1)
        for ours, theirs in zip(expected, got, strict=True)
    )


def vectors_of(case: Case, turned: Sequence[Answer]) -> dict[int, Vectors]:
    """Return the outputs that have other signs in calls with turned vectors, and are the same but
    for these."""
    assert case.expected is not None
    num_leaves = min(call.num_leaves for call in case.expected.calls)
    factors: dict[int, list[torch.Tensor]] = {}
    found: dict[int, Vectors] = {}
    for leaf in range(num_leaves):
        pairs = [
            (ours[leaf], theirs[leaf], case.tolerances[number][leaf])
            for one in turned
            for number, (ours, theirs) in enumerate(
                zip(case.expected.outputs, one.outputs, strict=True)
            )
        ]
        dims = directions(case, pairs)
        if dims is None:
            continue
        factors[leaf] = [factor_of([(one, other)], [dims]).flatten() for one, other, _ in pairs]
        group = next((n for n in found if turn_together(factors[n], factors[leaf])), leaf)
        found[leaf] = Vectors(dims, found[group].group if group in found else leaf)
    return found


def directions(
    case: Case, pairs: Sequence[tuple[torch.Tensor, torch.Tensor, Tolerance]]
) -> tuple[int, ...] | None:
    """Return as many dimensions as possible along which all elements turn together; None where
    that is no vector, or nothing turns."""
    first = pairs[0][0]
    if not (first.is_floating_point() or first.is_complex()):
        return None
    if any(ours.shape != theirs.shape or ours.dim() != first.dim() for ours, theirs, _ in pairs):
        return None
    for count in range(first.dim(), 0, -1):
        for dims in itertools.combinations(range(first.dim()), count):
            if all(is_turned(case, *pair, dims) for pair in pairs):
                turns = [factor_of([pair[:2]], [dims]) for pair in pairs]
                return dims if any(bool((one != 1).any()) for one in turns) else None
    return None


def is_turned(
    case: Case, ours: torch.Tensor, theirs: torch.Tensor, budget: Tolerance, dims: tuple[int, ...]
) -> bool:
    """Return whether two outputs are the same but for the signs of vectors."""
    again = theirs * factor_of([(ours, theirs)], [dims]).to(theirs.dtype)
    return difference(again, ours, None, budget, case.accelerator.device).excess <= 1


def turn_together(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Return whether the vectors of two outputs have turned in the same way in all calls."""
    return all(
        ours.shape == theirs.shape and bool(torch.isclose(ours, theirs, atol=1e-3).all())
        for ours, theirs in zip(one, other, strict=True)
    )


def factor_of(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], dims: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    """Return the number of size 1 that turns each vector of the second output of a pair into
    that of the first; of several pairs the one for all of them. Its shape is the first pair's,
    with 1 for the dimensions of a vector."""
    total: torch.Tensor | None = None
    for (ours, theirs), along in zip(pairs, dims, strict=True):
        one, other = widen(ours), widen(theirs).to(ours.device)
        product = (one * other.conj()).sum(along, keepdim=True)
        sizes = [each.abs().square().sum(along, keepdim=True).sqrt() for each in (one, other)]
        cosine = product / (sizes[0] * sizes[1]).clamp_min(1e-300)
        total = cosine if total is None else total + cosine.reshape(total.shape)
    assert total is not None
    if total.is_complex():
        return torch.where(total.abs() > 0, total / total.abs().clamp_min(1e-300), 1.0)
    return torch.where(total < 0, -1.0, 1.0)


def aligned(
    signs: dict[int, Vectors] | None, got: Outputs, expected: Outputs, first: int = 0
) -> list[torch.Tensor]:
    """Return outputs whose vectors have the signs of the expected ones where they may have any.
    Before the dimensions of an output there may be others (`first`)."""
    found = list(got)
    for group in sorted({one.group for one in (signs or {}).values()}):
        assert signs is not None
        members = [leaf for leaf, one in signs.items() if one.group == group]
        if any(got[leaf].shape != expected[leaf].shape for leaf in members):
            continue
        along = [tuple(dim + first for dim in signs[leaf].dims) for leaf in members]
        factor = factor_of([(expected[leaf], got[leaf]) for leaf in members], along)
        for leaf, dims in zip(members, along, strict=True):
            shape = [1 if dim in dims else n for dim, n in enumerate(got[leaf].shape)]
            turned = factor.reshape(shape).to(got[leaf].device, got[leaf].dtype)
            found[leaf] = got[leaf] * turned
    return found
