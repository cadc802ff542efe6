"""Whole numbers that rounding decides may be others, and no more than that."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.verifier.cases import Case
from cudal1_ci.sandboxed.verifier.compare import Difference, Tolerance
from cudal1_ci.sandboxed.verifier.inputs import InputSet
from cudal1_ci.sandboxed.verifier.near_inputs import shaken
from cudal1_ci.sandboxed.verifier.ties import Compared, Ties, extend, num_off, with_ties


def ties_of(inputs, function, most_place):
    """The ties of a function's outputs on some inputs."""
    generator, found = torch.Generator().manual_seed(0), {}
    for _ in range(8):
        nearby = shaken(InputSet([inputs]), generator).tensors[0]
        extend(found, function(inputs), function(nearby), most_place, is_shaken=True)
    return found


def places(x):
    return [x.argmax(-1), x.amax(-1)]


def test_all_places_among_zeros_are_right_and_no_others():
    zeros = torch.zeros(4, 9)
    ties = ties_of(zeros, places, 8)
    expected = places(zeros)
    got = [torch.tensor([8, 0, 3, 5]), expected[1]]
    assert torch.equal(with_ties(ties, got, expected)[0], expected[0])
    got[0][1] = 9
    assert with_ties(ties, got, expected)[0].tolist() == [*expected[0][:1], 9, *expected[0][2:]]


def test_a_number_that_is_the_largest_by_far_has_one_place():
    inputs = torch.zeros(2, 9)
    inputs[0, 4] = 1.0
    expected = places(inputs)
    ties = ties_of(inputs, places, 8)
    found = with_ties(ties, [torch.tensor([3, 3]), expected[1]], expected)
    assert found[0].tolist() == [3, int(expected[0][1])]
    assert ties_of(torch.eye(3), places, 2) == {}


def test_a_row_of_different_numbers_stays_one():
    expected = [torch.tensor([[0, 1, 2]])]
    ties = {0: Ties(torch.ones(1, 3, dtype=torch.bool), 0, 2)}
    assert torch.equal(with_ties(ties, [torch.tensor([[2, 0, 1]])], expected)[0], expected[0])
    assert with_ties(ties, [torch.tensor([[1, 1, 1]])], expected)[0].tolist() == [[1, 1, 1]]


def test_floats_that_jump_are_compared_with_the_nearest_choice():
    expected = [torch.tensor([1.0, 1.0, 1.0])]
    ties = {}
    extend(ties, expected, [torch.tensor([2.0, 1.001, 1.0])], 5, is_shaken=False)
    extend(ties, expected, [torch.tensor([5.0, 1.0, 1.0])], 5, is_shaken=False)
    (found,) = with_ties(ties, [torch.tensor([5.0, 2.0, 5.0])], expected)
    assert found.tolist() == [1.0, pytest.approx(1.999), 5.0]
    (found,) = with_ties(ties, [torch.tensor([4.75, 1.0, 1.0])], expected)
    assert found.tolist() == [0.75, 1.0, 1.0]


def test_floats_that_differ_by_rounding_and_other_shapes_are_no_ties():
    ties = {}
    ours = [torch.tensor([1.0]), torch.tensor([1, 2]), torch.tensor([1])]
    extend(
        ties,
        ours,
        [torch.tensor([1.001]), torch.tensor([1]), torch.tensor([2.0])],
        5,
        is_shaken=False,
    )
    assert ties == {}


def test_inputs_are_shaken_in_their_own_precision_and_layout():
    given = InputSet([torch.zeros(3, 4).t(), torch.ones(5).half(), torch.arange(3)], "data")
    found = shaken(given, torch.Generator().manual_seed(0))
    assert found.data == "data"
    assert found.tensors[0].stride() == (1, 4)
    assert 0 < float(found.tensors[0].abs().max()) < 1e-5
    assert (found.tensors[1] != 1).any()
    assert found.tensors[1].dtype == torch.half
    assert torch.equal(found.tensors[2], given.tensors[2])


def test_floats_that_jump_on_shaken_inputs_alone_are_no_ties():
    ties = {}
    extend(ties, [torch.tensor([2.0])], [torch.tensor([1.0])], 5, is_shaken=True)
    assert ties == {}


def test_an_answer_is_off_by_the_budget_of_its_trial():
    ours, theirs = [torch.ones(3)], [torch.tensor([1.0, 1.0, 1.0 + 2e-6])]
    trial = Compared(0, InputSet([torch.zeros(3)]), ours, theirs)
    case = SimpleNamespace(
        ties={},
        signs=None,
        noise={},
        jumps={},
        lost={},
        expected=SimpleNamespace(outputs=[ours]),
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        truth=lambda _: [torch.ones(3, dtype=torch.float64)],
        tolerances=[[Tolerance(1e-6, 0.0)]],
        differences=lambda got, expected: [Difference(0.0, 0.0, 0.5, 0)],
    )
    case.leaf_difference = partial(Case.leaf_difference, case)
    assert num_off(case, trial) == 1
    case.tolerances = [[Tolerance(3e-6, 0.0)]]
    assert num_off(case, trial) == 0
    other = replace(trial, key=-1)  # beyond the trials
    assert num_off(case, other) == 0
