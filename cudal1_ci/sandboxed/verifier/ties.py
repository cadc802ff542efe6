"""Allow for ties: elements that rounding of the inputs decides.

A sort, a choice of the largest or a comparison of equal numbers has several right answers. Trials
have many equal numbers (zeros, ones, short floats). Where a candidate is off, the reference is
called on inputs that differ by rounding, and in turn with random rounding and with equal numbers in
the order of their places, the reverse or any order (recorder/rounding.py). This ends when its
answers explain the candidate's, or no more elements change. A whole number that changes is a tie,
and may be any number from the least to the largest that the reference returned in that output, or
any place in an input. A row that never holds a number twice must not in a candidate. Where floats
of an output jump, since they were gathered by such an order, each of the candidate's is compared
with the nearest of the reference's on the very inputs.

Not covered: an order of equal numbers that the reference promises (a stable sort of floats).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from ..recorder.rounding import seed_of
from .cases import Answer, Case, Limits
from .compare import is_inexact, loose
from .inputs import InputSet, has_twice
from .magnitude import magnitude
from .near_inputs import shaken
from .signs import aligned

NUM_CALLS = 8
"""Calls of the reference that may in a row explain nothing more; twice as many where only every
second one explains floats. Of two equal numbers each is first in one of them but once in 128."""
MOST_CALLS = 64
NUM_UNITS = 2
"""Units in the last place by which results move, as by another order of a few operations."""
MOST_CHOICES = 2**24
"""Most elements of answers that are kept of an output of floats."""


@dataclass
class Ties:
    """The elements of an output that rounding decides, and the numbers that they may be."""

    elements: torch.Tensor
    least: int = 0
    most: int = 0
    repeats: bool = False
    """Whether a row of the reference's holds a number more than once."""
    choices: list[torch.Tensor] = field(default_factory=list)
    """The reference's answers, of an output of floats."""


@dataclass(frozen=True)
class Compared:
    """What reference and candidate return on a set of inputs."""

    key: int
    """The number of the trial, or another one."""
    inputs: InputSet
    expected: Sequence[torch.Tensor]
    got: Sequence[torch.Tensor]


def compared_trials(case: Case, answer: Answer) -> list[Compared]:
    """Return the trials with an answer."""
    assert case.expected is not None
    outputs = zip(case.trials, case.expected.outputs, answer.outputs, strict=True)
    return [
        Compared(number, one, expected, got)
        for number, ((_, one), expected, got) in enumerate(outputs)
    ]


def settle_ties(
    case: Case,
    template: Template,
    compared: Sequence[Compared],
    limits: Limits,
    state: list[torch.Tensor] | None = None,
) -> bool:
    """Learn the ties where an answer is off, of the case's state or another one. Return whether
    there are any. Where an earlier answer found none, nothing is asked again."""
    wanted = [one for one in compared if case.ties.get(one.key) != {} and num_off(case, one)]
    for one in wanted:
        case.ties.setdefault(one.key, {})
    if not wanted:
        return False
    try:
        learn(case, template, wanted, limits, state)
    except RunnerFailure:
        return False
    return any(case.ties[one.key] for one in wanted)


def num_off(case: Case, one: Compared) -> int:
    """Return how many elements are off that no known tie explains, by the budget of the trial where
    it is one; zero where forms differ."""
    ours = list(one.expected)
    if [(t.shape, t.dtype) for t in ours] != [(t.shape, t.dtype) for t in one.got]:
        return 0
    theirs = with_ties(case.ties.get(one.key), aligned(case.signs, list(one.got), ours), ours)
    if one.key in range(len(case.tolerances)):
        budgets = case.tolerances[one.key]
        found = [
            case.leaf_difference(one.key, leaf, *parts)
            for leaf, parts in enumerate(zip(theirs, budgets, strict=True))
        ]
    else:
        found = case.differences(theirs, ours)
    return sum(max(1, each.num_far) for each in found if each.excess > 1)


def is_whole(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds whole numbers or truth values."""
    return not is_inexact(tensor)


def learn(
    case: Case,
    template: Template,
    wanted: Sequence[Compared],
    limits: Limits,
    state: list[torch.Tensor] | None,
) -> None:
    """Learn the ties of sets of inputs. Raises RunnerFailure."""
    device = case.accelerator.device
    left, num_useless, num_rounded = sum(num_off(case, one) for one in wanted), 0, 0
    has_whole = any(is_whole(tensor) for one in wanted for tensor in one.expected)
    has_floats = any(is_inexact(tensor) for one in wanted for tensor in one.expected)
    num_calls = NUM_CALLS * 2 if has_whole and has_floats else NUM_CALLS
    with case.runner(template, case.program, limits) as runner:
        if state is not None:
            case.load_state(runner, state, limits)
        for number in range(MOST_CALLS):
            case.num_shaken += 1
            sets, rounding = [one.inputs for one in wanted], None
            if has_whole and number % 2 == 0:
                generator = torch.Generator(device).manual_seed(case.seed + case.num_shaken)
                sets = [shaken(one, generator, case.cast) for one in sets]
            else:
                rounding = seed_of(num_rounded, random.Random(case.seed + case.num_shaken))
                num_rounded += 1
            found = case.answer(runner, limits, sets=sets, rounding=rounding, num_units=NUM_UNITS)
            for one, outputs in zip(wanted, found.outputs, strict=True):
                sizes = [size for tensor in one.inputs.tensors for size in tensor.shape]
                known = case.ties[one.key]
                extend(
                    known,
                    one.expected,
                    outputs,
                    max(sizes, default=1) - 1,
                    is_shaken=rounding is None,
                )
            before, left = left, sum(num_off(case, one) for one in wanted)
            num_useless = 0 if left < before else num_useless + 1
            if not left or num_useless == num_calls:
                return


def extend(
    ties: dict[int, Ties],
    expected: Sequence[torch.Tensor],
    nearby: Sequence[torch.Tensor],
    most_place: int,
    *,
    is_shaken: bool,
) -> None:
    """Add the elements that are others on a nearby input. Floats are learned on the very inputs: a
    function may jump where an input has one value, and a candidate that does not is wrong there."""
    for leaf, (ours, theirs) in enumerate(zip(expected, nearby, strict=False)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            continue
        if is_shaken and not is_whole(ours):
            continue
        changed = theirs != ours if is_whole(ours) else jumps(ours, theirs)
        if not bool(changed.any()):
            continue
        known = ties.setdefault(leaf, Ties(changed))
        known.elements = known.elements | changed
        if not is_whole(ours):
            if (len(known.choices) + 1) * ours.numel() <= MOST_CHOICES:
                known.choices.append(theirs)
            continue
        numbers = [0, most_place, *(int(one) for each in (ours, theirs) for one in bounds_of(each))]
        known.repeats |= repeats(ours) or repeats(theirs)
        known.least, known.most = min(known.least, *numbers), max(known.most, *numbers)


def jumps(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Return which floats are further from each other than any precision explains."""
    far = loose(ours.dtype) * (ours.abs() + magnitude(ours))
    return (theirs - ours).abs() > far


def bounds_of(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least and the largest number."""
    numbers = tensor.to(torch.int64)
    return numbers.min(), numbers.max()


def with_ties(
    ties: dict[int, Ties] | None,
    got: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return outputs with the expected elements in place of ties that are answered otherwise; of
    floats with the distance to the nearest of the reference's choices."""
    found = list(got)
    for leaf, known in (ties or {}).items():
        ours, theirs = expected[leaf], got[leaf]
        if ours.shape != theirs.shape or (repeats(theirs) and not known.repeats):
            continue
        ours = ours.to(theirs.device)
        if is_whole(ours):
            free = (
                known.elements.to(theirs.device) & (theirs >= known.least) & (theirs <= known.most)
            )
            found[leaf] = torch.where(free, ours, theirs)
        else:
            found[leaf] = ours + nearest(theirs, [ours, *known.choices])
    return found


def nearest(tensor: torch.Tensor, choices: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return each element's difference from the nearest choice."""
    least = tensor - choices[0]
    for one in choices[1:]:
        away = tensor - one.to(tensor.device)
        least = torch.where(away.abs() < least.abs(), away, least)
    return least


def repeats(tensor: torch.Tensor) -> bool:
    """Return whether a row of several holds a whole number more than once."""
    is_counted = is_whole(tensor) and tensor.dtype != torch.bool
    return tensor.dim() > 1 and is_counted and has_twice(tensor)
