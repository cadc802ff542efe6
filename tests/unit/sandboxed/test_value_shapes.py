"""Outputs whose shape depends on values: bounded from trials, shapes before elements."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory.segment import dtype_of
from cudal1_ci.sandboxed.runner.cotangents import like, slots_like
from cudal1_ci.sandboxed.runner.value_shapes import NUM_NUMBERS, fitted, in_rows
from cudal1_ci.sandboxed.timing.timed_checks import compare_shapes
from cudal1_ci.sandboxed.verifier.cases import Rejected
from cudal1_ci.sandboxed.verifier.inputs import InputSet
from cudal1_ci.sandboxed.verifier.value_shapes import (
    MARGIN,
    MORE,
    bounded,
    in_shape,
    learn_bounds,
    most_elements,
    places_of,
    tidied,
    without_rest,
)
from tests.unit.sandboxed.messages import called


def case_of(*outputs, inputs=None, moves=()):
    inputs = inputs or [torch.zeros(4)] * len(outputs)
    trials = [("drawn", InputSet([one])) for one in inputs]
    calls = [SimpleNamespace(num_leaves=len(one)) for one in outputs]
    expected = SimpleNamespace(outputs=[list(one) for one in outputs], calls=calls)
    source = SimpleNamespace(moves=moves)
    return SimpleNamespace(trials=trials, expected=expected, bounds={}, source=source)


def test_an_output_of_other_lengths_is_bounded_by_the_longest():
    case = case_of((torch.ones(3), torch.ones(7, 2)), (torch.ones(3), torch.ones(5, 2)))
    learn_bounds(case)
    assert case.bounds == {1: MARGIN * 14 + MORE}


def test_outputs_whose_lengths_change_places_are_bounded_by_the_longest_of_all():
    lengths = (torch.ones(3), torch.ones(9)), (torch.ones(4), torch.ones(7))
    case = case_of(*lengths, moves=[True])
    learn_bounds(case)
    assert case.bounds == dict.fromkeys((0, 1), MARGIN * 9 + MORE)


def test_inputs_of_other_shapes_say_nothing_of_values():
    inputs = [torch.zeros(4), torch.zeros(5)]
    case = case_of((torch.ones(4),), (torch.ones(5),), inputs=inputs)
    learn_bounds(case)
    assert case.bounds == {}


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (((torch.ones(1),), (torch.ones(1), torch.ones(1))), "in one tensor"),
        (((torch.ones((1,) * 9),), (torch.ones((2,) * 9),)), "flatten it"),
    ],
)
def test_what_cannot_be_bounded_says_what_to_do(outputs, words):
    with pytest.raises(Rejected, match=words) as failed:
        learn_bounds(case_of(*outputs))
    assert failed.value.finding.rule == "reference.dynamic_shape"


def test_places_of_a_timed_call_are_a_shape_and_a_row():
    slot = called().slots[0]
    bounds = {1: 20}
    places = bounded([slot, slot, slot], bounds)
    assert [one.shape for one in places] == [(2, 3), (NUM_NUMBERS,), (20,), (2, 3)]
    assert places_of(3, bounds) == [(0, False), (1, True), (1, False), (2, False)]


def written(*outputs, bound=12):
    """What the places of calls hold, with what was there before in the rest."""
    places = [[torch.full((NUM_NUMBERS,), -1), torch.full((bound,), torch.nan)] for _ in outputs]
    for output, some in zip(outputs, places, strict=True):
        for place, tensor in zip(*fitted(some, in_rows([output], {0})), strict=True):
            place.copy_(tensor)
    return torch.stack([one for one, _ in places]), torch.stack([one for _, one in places])


def test_elements_are_copied_row_by_row_and_the_rest_is_left_out():
    output = torch.arange(6.0).reshape(2, 3).t()
    shapes, values = written(output, torch.tensor(5.0), torch.ones(0))
    assert [one[: 1 + one[0]].tolist() for one in shapes] == [[2, 3, 2], [0], [1, 0]]
    found = without_rest(values, shapes)
    assert found[0].tolist() == [*output.flatten().tolist(), *[0.0] * 6]
    assert found[1].tolist() == [5.0, *[0.0] * 11]
    assert not found[2].any()
    assert most_elements(shapes) == 6


def test_of_a_longer_output_the_beginning_is_copied_and_its_shape_shows_it():
    shapes, values = written(torch.arange(20.0))
    assert values[0].tolist() == list(range(12))
    assert most_elements(shapes) == 20
    with pytest.raises(Rejected, match="20 elements") as failed:
        compare_shapes(0, shapes, shapes, 12)
    assert failed.value.status == "inconclusive"


def test_another_shape_is_wrong_and_named():
    expected, _ = written(torch.ones(3, 2))
    got, _ = written(torch.ones(2, 3))
    with pytest.raises(Rejected, match=r"shape \[2, 3\], expected \[3, 2\]") as failed:
        compare_shapes(0, got, expected, 12)
    assert failed.value.status == "incorrect_shape"
    got[0, 0] = 2**40
    with pytest.raises(Rejected, match="expected"):
        compare_shapes(0, got, expected, 12)
    compare_shapes(0, expected, expected, 12)


def test_the_gradient_of_such_an_output_is_the_beginning_of_a_row():
    slot = called().slots[0]
    (wanted,) = slots_like([slot], {0: 20})
    assert wanted.shape == (20,)
    given = torch.arange(20, dtype=dtype_of(wanted.dtype))
    assert like(given, torch.ones(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert like(given[:6].reshape(2, 3), torch.ones(2, 3)).shape == (2, 3)


def test_the_outputs_of_one_call_come_back_in_their_own_shapes():
    output = torch.arange(6.0).reshape(2, 3)
    shapes, values = written(output)
    places = [shapes[0], values[0], torch.ones(4)]
    assert torch.equal(tidied(places, {0: 12})[1], torch.cat([output.flatten(), torch.zeros(6)]))
    found = in_shape(places, {0: 12})
    assert torch.equal(found[0], output)
    assert found[1].shape == (4,)
    shapes[0, 1] = 2**40
    assert in_shape(places, {0: 12})[0].shape == (12,)
    shapes[0, 1] = -1
    assert in_shape(places, {0: 12})[0].shape == (12,)
