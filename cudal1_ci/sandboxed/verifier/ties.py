"""Allow for ties: whole numbers and truth values that rounding of the inputs decides.

A sort, a choice of the largest or a comparison of equal numbers has several right answers. Trials
have many equal numbers (zeros, ones, short floats). Where a candidate is off in whole numbers, the
reference is called on inputs that differ by rounding. An element that changes there is a tie, and
may be any number from the least to the largest that the reference returned in that output, or any
place in an input. A row that never holds a number twice must not in a candidate.

Not covered: an order of equal numbers that the reference promises (a stable sort).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..forkserver.client import Template
from ..forkserver.handles import RunnerFailure
from .cases import Answer, Case, Limits
from .inputs import InputSet, has_twice
from .near_inputs import shaken

NUM_CALLS = 8
"""Calls of the reference. Of two equal numbers each is first in one of them but once in 128."""


@dataclass
class Ties:
    """The elements of an output that rounding decides, and the numbers that they may be."""

    elements: torch.Tensor
    least: int
    most: int
    repeats: bool = False
    """Whether a row of the reference's holds a number more than once."""


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
    """Learn the ties where an answer is off in whole numbers, of the case's state or another one.
    Return whether there are any that were not known."""
    wanted = [one for one in compared if one.key not in case.ties and is_off(one.got, one.expected)]
    for one in wanted:
        case.ties[one.key] = {}
    if not wanted:
        return False
    try:
        learn(case, template, wanted, limits, state)
    except RunnerFailure:
        return False
    return any(case.ties[one.key] for one in wanted)


def is_off(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Return whether whole numbers are others."""
    return any(
        is_whole(theirs) and ours.shape == theirs.shape and not torch.equal(ours, theirs)
        for ours, theirs in zip(got, expected, strict=True)
    )


def is_whole(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds whole numbers or truth values."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def learn(
    case: Case,
    template: Template,
    wanted: Sequence[Compared],
    limits: Limits,
    state: list[torch.Tensor] | None,
) -> None:
    """Learn the ties of sets of inputs. Raises RunnerFailure."""
    generator = torch.Generator(case.accelerator.device).manual_seed(case.seed)
    with case.runner(template, case.program, limits) as runner:
        if state is not None:
            case.load_state(runner, state, limits)
        for _ in range(NUM_CALLS):
            sets = [shaken(one.inputs, generator) for one in wanted]
            found = case.answer(runner, limits, sets=sets)
            for one, outputs in zip(wanted, found.outputs, strict=True):
                sizes = [size for tensor in one.inputs.tensors for size in tensor.shape]
                extend(case.ties[one.key], one.expected, outputs, max(sizes, default=1) - 1)


def extend(
    ties: dict[int, Ties],
    expected: Sequence[torch.Tensor],
    nearby: Sequence[torch.Tensor],
    most_place: int,
) -> None:
    """Add the elements that are others on a nearby input."""
    for leaf, (ours, theirs) in enumerate(zip(expected, nearby, strict=False)):
        if not is_whole(ours) or ours.shape != theirs.shape:
            continue
        changed = theirs != ours
        if not bool(changed.any()):
            continue
        numbers = [0, most_place, *(int(one) for each in (ours, theirs) for one in bounds_of(each))]
        known = ties.setdefault(leaf, Ties(changed, 0, 0))
        known.elements = known.elements | changed
        known.repeats |= repeats(ours) or repeats(theirs)
        known.least, known.most = min(known.least, *numbers), max(known.most, *numbers)


def bounds_of(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least and the largest number."""
    numbers = tensor.to(torch.int64)
    return numbers.min(), numbers.max()


def with_ties(
    ties: dict[int, Ties] | None,
    got: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return outputs with the expected elements in place of ties that are answered otherwise."""
    found = list(got)
    for leaf, known in (ties or {}).items():
        ours, theirs = expected[leaf], got[leaf]
        if ours.shape != theirs.shape or (repeats(theirs) and not known.repeats):
            continue
        free = known.elements.to(theirs.device) & (theirs >= known.least) & (theirs <= known.most)
        found[leaf] = torch.where(free, ours.to(theirs.device), theirs)
    return found


def repeats(tensor: torch.Tensor) -> bool:
    """Return whether a row of several holds a number more than once."""
    return tensor.dim() > 1 and tensor.dtype != torch.bool and has_twice(tensor)
