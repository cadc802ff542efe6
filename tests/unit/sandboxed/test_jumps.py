"""Elements that are off where the reference itself jumps, and those that are wrong."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.sandboxed.verifier.compare import Tolerance
from cudal1_ci.sandboxed.verifier.near_inputs import MOST_NEARBY, are_jumps, nudge, strays_of

BUDGET = Tolerance(1e-5, 1e-5)


class Reference:
    """The gradient of a ReLU of a sum, on inputs nearby."""

    def __init__(self, inputs: torch.Tensor):
        self.inputs = inputs
        self.now = inputs
        self.generator = torch.Generator().manual_seed(0)
        self.num_calls = 0

    def nearby(self, num_left: int) -> None:
        assert num_left > 0
        self.num_calls += 1
        self.now = self.inputs.clone()
        nudge(self.now, self.generator, is_rigid=False)

    def values(self, number: int = 0) -> torch.Tensor:
        return (self.now.sum(-1) > number) * self.now[..., 0]


def close_to_zero() -> Reference:
    """The sum of the third row is zero but for rounding."""
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    inputs[2, -1] = 0
    inputs[2, -1] = -inputs[2].sum()
    return Reference(inputs)


def test_who_is_on_the_other_side_of_a_jump_is_not_wrong():
    reference = close_to_zero()
    expected = reference.values()
    got = expected.clone()
    got[2] = reference.inputs[2, 0] - got[2]  # 0 where it is not, and the other way round
    strays = strays_of(got, expected, BUDGET)
    assert [some.tolist() for some in strays.numbers] == [[2]]
    assert are_jumps({0: strays}, reference.nearby, reference.values)
    assert 1 <= reference.num_calls <= MOST_NEARBY


@pytest.mark.parametrize(("row", "off"), [(5, 1e-3), (2, 1e-2), (2, -1e-2)])
def test_what_the_reference_never_returns_is_wrong(row, off):
    """Beside a jump, and where there is one but neither side is as far off."""
    reference = close_to_zero()
    expected = reference.values()
    sides = torch.tensor([0.0, float(reference.inputs[2, 0])])
    got = expected.clone()
    got[row] = (sides.max() if off > 0 else sides.min()) + off if row == 2 else got[row] + off
    strays = strays_of(got, expected, BUDGET)
    assert not are_jumps({0: strays}, reference.nearby, reference.values)
    assert reference.num_calls == MOST_NEARBY


def test_one_that_jumps_does_not_explain_another_that_is_off():
    reference = close_to_zero()
    expected = reference.values()
    got = expected.clone()
    got[2] = reference.inputs[2, 0] - got[2]
    wrong = reference.values(1) + 1e-3
    strays = {0: strays_of(got, expected, BUDGET), 1: strays_of(wrong, reference.values(1), BUDGET)}
    assert not are_jumps(strays, reference.nearby, reference.values)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (torch.tensor([1 + 2**60]), torch.tensor([2**60])),
        (torch.tensor([1j]), torch.tensor([2j])),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, 1.0])),
        (torch.tensor([1.0, 1.0]), torch.tensor([float("inf"), 1.0])),
    ],
)
def test_what_cannot_be_told_apart_or_is_not_finite_is_not_explained(got, expected):
    assert strays_of(got, expected, BUDGET) is None


EXACT = Tolerance(0.0, 0.0)


def test_places_of_equal_numbers_are_explained_and_others_are_not():
    inputs = torch.rand(400, 8, generator=torch.Generator().manual_seed(1)) + 1
    inputs[:, 5] = inputs[:, 2] = 3.0
    reference = Reference(inputs)

    def places(number: int = 0) -> torch.Tensor:
        return reference.now.argmax(-1)

    expected = places()
    other = torch.where(expected == 2, 5, 2)
    strays = strays_of(other, expected, EXACT)
    assert are_jumps({0: strays}, reference.nearby, places)
    other[:8] = 6
    strays = strays_of(other, expected, EXACT)
    assert not are_jumps({0: strays}, reference.nearby, places)


def test_elements_are_found_in_all_pieces_of_a_large_tensor(monkeypatch):
    monkeypatch.setattr(
        "cudal1_ci.sandboxed.verifier.magnitude.PIECE_ELEMENTS", {"cpu": 10, "cuda": 10}
    )
    expected = torch.arange(35.0).reshape(5, 7)
    got = expected.clone()
    got[0, 3], got[4, 6] = 100.0, 200.0
    strays = strays_of(got, expected, BUDGET)
    assert [some.tolist() for some in strays.numbers] == [[3], [], [], [4]]
    strays.look(got)
    assert not strays.num_left


def test_too_many_are_not_looked_at(monkeypatch):
    monkeypatch.setattr("cudal1_ci.sandboxed.verifier.near_inputs.MOST_ELEMENTS", 3)
    expected = torch.zeros(10)
    assert strays_of(torch.tensor([1.0] * 3 + [0.0] * 7), expected, BUDGET) is not None
    assert strays_of(torch.tensor([1.0] * 4 + [0.0] * 6), expected, BUDGET) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_rigid", [False, True])
def test_inputs_nearby_differ_by_rounding(dtype, is_rigid):
    before = torch.randn(4, 5, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    after = before.clone()
    nudge(after, torch.Generator().manual_seed(1), is_rigid=is_rigid)
    ratios = (after.double() / before.double() - 1) / torch.finfo(dtype).eps
    assert 0 < ratios.abs().max() < 50
    if is_rigid:
        assert ratios.max() - ratios.min() <= 1.01  # rounded
    else:
        assert ratios.min() < 0 < ratios.max()


def test_whole_numbers_stay_as_they_are():
    before = torch.arange(10)
    after = before.clone()
    nudge(after, torch.Generator(), is_rigid=False)
    assert torch.equal(before, after)
    nudge(torch.empty(0), torch.Generator(), is_rigid=False)
