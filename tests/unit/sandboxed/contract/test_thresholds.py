"""Elements that rounding of the reference moves across a threshold are not wrong in a candidate."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.verifier.compare import difference, tolerance
from cudal1_ci.sandboxed.verifier.contract.judgement import (
    UNSETTLED,
    Result,
    different_values,
    is_explained,
    with_near_ties,
)

EXPECTED = torch.rand(4, 500, generator=torch.Generator().manual_seed(0))
CASE = SimpleNamespace(
    given=None, cast=None, accelerator=SimpleNamespace(device=torch.device("cpu"))
)


def flipped(*places):
    """Return the reference's output with zeros at some places of the first row."""
    found = EXPECTED.clone()
    for one in places:
        found[0, one] = 0.0
    return found


@pytest.mark.parametrize(
    ("got", "nearby", "is_right"),
    [
        (flipped(7), [flipped(), flipped(7)], True),
        (flipped(7), [flipped(9), flipped(7), flipped(9, 7)], True),
        (flipped(7), [flipped(), flipped(9)], False),
        (flipped(7) + 0.01, [flipped(7)], False),
        (flipped(7), [flipped(*range(100))], False),  # too many jump
        (flipped(7), [], False),
    ],
)
def test_a_jump_of_the_reference_explains_the_same_element_alone(got, nearby, is_right):
    assert is_explained(CASE, EXPECTED, got, nearby) is is_right


@pytest.mark.parametrize(
    ("got", "wide", "is_right"),
    [
        (flipped(7), flipped(7), True),
        (flipped(7), flipped(9), False),
        (flipped(7), flipped(*range(100)), False),
        (EXPECTED + 1e-4, EXPECTED + 1e-4, True),
        (EXPECTED + 1e-4, EXPECTED + 1e-5, False),  # smooth: it grows with the units
    ],
)
def test_a_threshold_that_larger_moves_reach_explains_it_too(got, wide, is_right):
    assert is_explained(CASE, EXPECTED, got, [flipped()], [wide]) is is_right


@pytest.mark.parametrize(("num_moved", "is_unsettled"), [(0, False), (1, False), (100, True)])
def test_rounding_that_moves_more_than_what_is_off_settles_nothing(num_moved, is_unsettled):
    """Nearby calls of the reference never are where the candidate is, and move other elements."""

    def result(tensor):
        return Result((), ("output 0",), (), [tensor], False, ())

    def near(ours, truth):
        return difference(ours, truth, None, tolerance(truth, None, None), torch.device("cpu"))

    case = SimpleNamespace(
        given=None,
        cast=None,
        accelerator=CASE.accelerator,
        precision="strict",
        known=(),
        difference=lambda its, mine, *_: near(its, mine),
    )
    said = different_values(
        case,
        result(EXPECTED),
        result(flipped(300, 301)),
        lambda: None,
        lambda num_units: [result(flipped(*range(num_moved)))],
        list,
        has_odd=False,
    )
    assert "output 0 is off by" in said
    assert said.endswith(UNSETTLED) is is_unsettled


def places(*numbers):
    """Return a use that came to the places of the largest numbers of two rows."""
    return Result((), (), (), [torch.tensor([[5, 2, 0], list(numbers)])], False, ())


@pytest.mark.parametrize(
    ("got", "is_right"),
    [((7, 3, 1), True), ((9, 3, 1), True), ((7, 3, 4), False), ((3, 3, 1), False)],
)
def test_a_choice_among_equal_numbers_may_be_another_one(got, is_right):
    """The first of the second row is a tie: a place up to the longest row's, and none twice."""
    ours, nearby = places(7, 3, 1), [places(7, 3, 1), places(9, 3, 1)]
    found = with_near_ties(ours, places(*got), nearby)
    assert torch.equal(found[0], ours.tensors[0]) is is_right
