"""What is seen of many outputs at once is what a look at each of them shows."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from cudal1_ci.sandboxed.verifier import glance, oracle
from cudal1_ci.sandboxed.verifier.compare import is_near, largest_error, tolerance
from cudal1_ci.sandboxed.verifier.glance import glances
from cudal1_ci.sandboxed.verifier.magnitude import measure
from cudal1_ci.sandboxed.verifier.oracle import accept, settle_tolerances
from tests.unit.sandboxed.test_noise import case_of

CPU = torch.device("cpu")


def outputs(seed: int, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs of several sizes and scales, and their oracle."""
    random = torch.Generator().manual_seed(seed)
    shapes = [(3,), (64, 5), (1,), (2, 2, 2), (200,)]
    scales = [1.0, 1e-6, 30.0, 0.0, 900.0]
    exact = [
        scale * torch.randn(shape, generator=random, dtype=torch.float64)
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    return [one.to(dtype) for one in exact], exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("most", [2**17, 600])
def test_many_outputs_are_seen_as_each_is(monkeypatch, dtype, most):
    monkeypatch.setitem(glance.most_elements.__globals__["PIECE_ELEMENTS"], "cpu", most)
    ours, exact = outputs(0, dtype)
    seen = glances(ours, exact, CPU)
    assert sum(one is not None for one in seen) >= 3
    for one, other, found in zip(ours, exact, seen, strict=True):
        if found is None:
            continue
        assert found.root_mean_square == pytest.approx(measure(other).root_mean_square)
        assert measure(other).below == math.inf
        assert found.error == pytest.approx(largest_error(one, other))
        assert found.largest == pytest.approx(float(other.abs().max()))
        assert is_near(one, other, 1e-3, CPU, found) == is_near(one, other, 1e-3)
        with_a_glance = tolerance(one, other, None, CPU, glance=found)
        without = tolerance(one, other, None, CPU)
        assert with_a_glance.absolute == pytest.approx(without.absolute)
        assert (with_a_glance.relative, with_a_glance.is_guessed) == (without.relative, False)


@pytest.mark.parametrize(
    ("ours", "exact"),
    [
        (torch.tensor([1.0, torch.inf]), torch.tensor([1.0, 2.0])),
        (torch.tensor([1.0, 2.0]), torch.tensor([torch.nan, 2.0])),
        (torch.tensor([1.0, -1e9, -1e9]), torch.tensor([1.0, -1e9, -1e9])),
        (torch.tensor([1, 2]), torch.tensor([1, 2])),
        (torch.tensor([1j]), torch.tensor([1j])),
        (torch.zeros(0), torch.zeros(0)),
        (torch.zeros(2), torch.zeros(3)),
    ],
)
def test_what_needs_a_look_of_its_own_is_left_to_it(ours, exact):
    plain = torch.ones(4)
    first, found, last = glances([plain, ours, plain], [plain, exact, plain], CPU)
    assert first == last and first is not None
    assert found is None


@pytest.mark.parametrize("train", [False, True])
def test_an_oracle_is_taken_as_without_a_glance(monkeypatch, train):
    """Noise, misfits and budgets are the same."""
    given = case_of(train=train)
    given[1][1][0] += 1.0  # a misfit

    def settled():
        case, theirs = copy.deepcopy(given)
        reason = accept(case, theirs)
        settle_tolerances(case)
        return case, reason

    case, reason = settled()
    monkeypatch.setattr(oracle, "glances", lambda ours, exact, device: [None] * len(ours))
    alone, said = settled()
    assert case.glances and not alone.glances
    assert reason == said and reason is not None
    assert [one is None for one in case.oracle] == [one is None for one in alone.oracle]
    assert set(case.noise) == set(alone.noise)
    for some, others in zip(case.tolerances, alone.tolerances, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.absolute == pytest.approx(other.absolute)
            assert (one.relative, one.is_guessed) == (other.relative, other.is_guessed)
