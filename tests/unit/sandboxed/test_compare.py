"""When an output counts as the same: tolerances with known answers."""

from __future__ import annotations

import ast
import math
import random

import pytest
import torch

from cudal1_ci.sandboxed.verifier.compare import (
    Tolerance,
    as_bools,
    difference,
    is_near,
    tolerance,
)
from cudal1_ci.sandboxed.verifier.inputs import each_same_at_once, each_same_bits, same_bits
from cudal1_ci.sandboxed.verifier.magnitude import (
    PIECE_ELEMENTS,
    Magnitude,
    measure,
    root_mean_square,
)

GENERATOR = torch.Generator().manual_seed(0)
TRUTH = torch.randn(1000, generator=GENERATOR, dtype=torch.float64)
ROUNDED = TRUTH.float()
INF, NAN = float("inf"), float("nan")


def compared(candidate, reference=ROUNDED, oracle=TRUTH, given=None):
    return difference(candidate, reference, oracle, tolerance(reference, oracle, given))


def test_the_reference_is_within_its_own_budget():
    assert compared(ROUNDED.clone()).excess <= 1


def test_another_rounding_of_the_same_precision_passes():
    other = (TRUTH * (1 + 2**-23)).float()
    assert compared(other).excess <= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_lower_precision_is_beyond_the_budget_but_loose(dtype):
    found = compared(ROUNDED.to(dtype).float())
    assert found.excess > 10
    assert found.is_loose


@pytest.mark.parametrize(("dtype", "factor"), [(torch.bfloat16, 1.05), (torch.float16, 1.01)])
@pytest.mark.parametrize("with_oracle", [True, False])
def test_short_floats_may_be_off_by_little_more_than_their_rounding(dtype, factor, with_oracle):
    oracle = TRUTH if with_oracle else None
    reference = TRUTH.to(dtype)
    rounded_twice = (TRUTH.to(dtype) * (1 + torch.finfo(dtype).eps)).to(dtype)
    assert compared(rounded_twice, reference, oracle).excess <= 1
    assert compared((TRUTH * factor**2).to(dtype), reference, oracle).excess > 1
    assert compared(torch.zeros_like(reference), reference, oracle).excess > 1


def test_what_was_allowed_on_other_inputs_is_allowed_in_proportion():
    off = ROUNDED * 100 + 0.5
    assert difference(off, ROUNDED * 100, None, tolerance(ROUNDED * 100, None, None)).excess > 1
    known = tolerance(ROUNDED * 100, None, None, known=0.006)
    assert difference(off, ROUNDED * 100, None, known).excess <= 1
    assert difference(off + 0.5, ROUNDED * 100, None, known).excess > 1


def test_a_wrong_element_is_found_with_its_place():
    wrong = ROUNDED.clone()
    wrong[123] += 1.0
    found = compared(wrong)
    assert found.excess > 1
    assert not found.is_loose
    assert found.num_far == 1
    assert found.where == "[123]"
    assert found.max_abs == pytest.approx(1.0)


def test_elements_are_far_that_no_precision_explains():
    assert compared(ROUNDED.bfloat16().float()).num_far == 0
    assert compared(ROUNDED + 1.0).num_far == ROUNDED.numel()
    half = torch.where(torch.arange(ROUNDED.numel()) % 2 == 0, ROUNDED, NAN)
    assert compared(half).num_far == ROUNDED.numel() // 2


def test_zeros_do_not_pass_for_small_numbers():
    small = ROUNDED * 1e-9
    assert compared(torch.zeros_like(small), small, small.double()).excess > 1


def test_an_expected_zero_allows_one_rounding_of_a_number_near_one_and_no_more():
    zeros = torch.zeros(8)
    assert compared(torch.full((8,), 1e-8), zeros, zeros.double()).excess <= 1
    assert compared(torch.full((8,), 1e-3), zeros, zeros.double()).excess > 1


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [(INF, INF, True), (INF, -INF, False), (INF, 3e38, False), (NAN, NAN, True), (NAN, 0.0, False)],
)
def test_what_is_not_finite_must_be_so_in_the_same_way(expected, got, same):
    reference = torch.tensor([1.0, expected])
    candidate = torch.tensor([1.0, got])
    assert (compared(candidate, reference, reference.double()).excess <= 1) is same


def test_where_the_reference_overflows_and_the_oracle_does_not_the_oracle_counts():
    reference, oracle = torch.tensor([1.0, INF]), torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert compared(torch.tensor([1.0, 2.0]), reference, oracle).excess <= 1
    assert compared(torch.tensor([1.0, INF]), reference, oracle).excess > 1


def test_integers_and_booleans_must_be_equal():
    reference = torch.tensor([1, 2, 3])
    assert compared(torch.tensor([1, 2, 3]), reference, None).excess == 0
    found = compared(torch.tensor([1, 2, 4]), reference, None)
    assert (found.excess, found.max_abs, found.where) == (INF, 1.0, "[2]")
    assert compared(torch.tensor([True]), torch.tensor([False]), None).excess == INF


def test_complex_numbers_are_compared_by_their_distance():
    reference = torch.view_as_complex(ROUNDED.reshape(-1, 2).contiguous())
    oracle = torch.view_as_complex(TRUTH.reshape(-1, 2).contiguous())
    assert compared(reference.clone(), reference, oracle).excess <= 1
    assert compared(reference + 0.1j, reference, oracle).excess > 1


def test_the_users_tolerance_replaces_the_budget():
    off = ROUNDED + 0.01
    assert compared(off).excess > 1
    assert compared(off, given=(0.02, 0.0)).excess <= 1


def test_nothing_is_equal_to_nothing():
    empty = torch.empty(0, 4)
    assert compared(empty, empty, None).excess == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
@pytest.mark.parametrize("with_oracle", [True, False])
def test_a_comparison_in_pieces_says_what_one_as_a_whole_says(monkeypatch, dtype, with_oracle):
    generator = torch.Generator().manual_seed(0)
    exact = (100 * torch.randn(5, 4, 3, dtype=torch.float64, generator=generator)).to(
        torch.complex128 if dtype.is_complex else torch.float64
    )
    reference = exact.to(dtype)
    candidate = reference.clone()
    candidate[3, 1, 2] += 7
    oracle = exact if with_oracle and dtype != torch.int64 else None
    budget = tolerance(reference, oracle, None)
    whole = difference(candidate, reference, oracle, budget)
    monkeypatch.setitem(PIECE_ELEMENTS, "cpu", 7)
    again = tolerance(reference, oracle, None)
    assert again.absolute == pytest.approx(budget.absolute)
    found = difference(candidate, reference, oracle, budget)
    assert found.excess == pytest.approx(whole.excess)
    assert (found.max_abs, found.num_far) == (whole.max_abs, whole.num_far) == (whole.max_abs, 1)
    assert found.where == whole.where
    assert whole.where == "[3, 1, 2]"


def elementwise(got: float, said: float, exact: float | None, budget: Tolerance) -> float:
    """What is said of one element, as it is defined."""
    truth = said if exact is None or not math.isfinite(exact) else exact
    if math.isfinite(truth) and math.isfinite(got):
        return abs(got - truth) / max(budget.absolute + budget.relative * abs(truth), 1e-300)
    same = math.isnan(got) if math.isnan(truth) else got == truth
    return 0.0 if same else INF


@pytest.mark.parametrize("most", [3, 2**17])
def test_the_excess_is_that_of_the_worst_element(monkeypatch, most):
    monkeypatch.setitem(PIECE_ELEMENTS, "cpu", most)
    for seed in range(200):
        *given, expected = odd_outputs(seed)
        found = difference(*given)
        assert found.excess == pytest.approx(max(expected)), f"seed {seed}: {given}"
        if found.excess > 1:
            (where,) = ast.literal_eval(found.where)
            assert expected[where] == pytest.approx(max(expected)), f"seed {seed}: {given}"


def odd_outputs(seed):
    """Return arguments of `difference`, and the excess of each of their elements."""
    rng = random.Random(seed)
    oddity = rng.choice([0.0, 0.0, 0.2])

    def odd(value: float) -> float:
        return rng.choice([INF, -INF, NAN]) if rng.random() < oddity else value

    truth = [rng.gauss(0, 1) * 10 ** rng.uniform(-4, 4) for _ in range(7)]
    exact = torch.tensor([odd(one) for one in truth], dtype=torch.float64)
    said = torch.tensor([odd(one) for one in truth])
    off = rng.choice([0.0, 1e-7, 1e-3, 1.0])
    got = torch.tensor(
        [
            one if rng.random() < 0.5 else odd(one * (1 + off))
            for one in map(float, said if oddity else exact)
        ]
    )
    oracle = exact if rng.random() < 0.5 else None
    budget = rng.choice([Tolerance(1e-6, 1e-6), Tolerance(0.0, 0.0), Tolerance(INF, 0.0)])
    exacts = [None] * 7 if oracle is None else oracle.tolist()
    expected = [
        elementwise(*one, budget) for one in zip(got.tolist(), said.tolist(), exacts, strict=True)
    ]
    return got, said, oracle, budget, expected


@pytest.mark.parametrize("fill", [-1e9, torch.finfo(torch.float32).min, -1e4])
@pytest.mark.parametrize("with_oracle", [True, False])
def test_a_mask_does_not_hide_what_is_beside_it(fill, with_oracle):
    is_masked = torch.arange(ROUNDED.numel()) % 3 == 0
    oracle = (TRUTH * 0.1).masked_fill(is_masked, fill)
    reference = oracle.float()
    oracle = oracle if with_oracle else None
    assert compared(reference.clone(), reference, oracle).excess <= 1
    rounded = (reference * (1 + 2**-22)).clamp(min=torch.finfo(torch.float32).min)
    assert compared(rounded, reference, oracle).excess <= 1
    beside = torch.zeros_like(reference).masked_fill(is_masked, fill)
    assert compared(beside, reference, oracle).num_far > 0.6 * ROUNDED.numel()
    assert compared(reference.masked_fill(is_masked, 0.0), reference, oracle).excess > 1


def test_two_masks_and_their_sum_are_masks():
    fills = torch.tensor([0.0, -1e9, -2e9, 0.0], dtype=torch.float64).repeat(250)
    scores = TRUTH.where(fills == 0, 0.0) + fills
    assert measure(scores).root_mean_square < 2
    assert measure(scores).below == pytest.approx(0.99e9)


@pytest.mark.parametrize(
    "values",
    [
        TRUTH * 1e9,  # large as a whole
        torch.cat([TRUTH, torch.tensor([1e9], dtype=torch.float64)]),  # one computed value
        torch.cat([TRUTH, 1e4 + 1e3 * TRUTH]),  # of two sizes, and not alike
        torch.cat([TRUTH * 1e-6, torch.ones(10, dtype=torch.float64)]),  # saturated
        torch.full((10,), -1e9, dtype=torch.float64),
    ],
)
def test_values_that_are_computed_are_no_mask(values):
    assert measure(values) == Magnitude(root_mean_square(values))


def test_a_known_magnitude_is_not_computed_again(monkeypatch):
    budget = tolerance(ROUNDED, TRUTH, None)
    assert budget.scale == pytest.approx(float(TRUTH.square().mean().sqrt()))
    whole = difference(ROUNDED + 0.1, ROUNDED, TRUTH, budget)
    monkeypatch.setattr("cudal1_ci.sandboxed.verifier.compare.magnitude", None)
    assert difference(ROUNDED + 0.1, ROUNDED, TRUTH, budget) == whole


SAME = [
    (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN]), True),
    (torch.tensor([1.0, NAN]), torch.tensor([NAN, 1.0]), False),
    (torch.tensor([INF, 0.0]), torch.tensor([INF, -0.0]), True),
    (torch.tensor([1.0]), torch.tensor([1.0000001]), False),
    (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
    (torch.tensor([True]), torch.tensor([False]), False),
    (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), True),
    (torch.tensor([complex(NAN, 1)]), torch.tensor([complex(NAN, 1)]), True),
    (torch.empty(0), torch.empty(0), True),
]


@pytest.mark.parametrize("most", [1, 2**17])
def test_what_is_the_same_is_so_one_by_one_and_at_once(monkeypatch, most):
    monkeypatch.setitem(PIECE_ELEMENTS, "cpu", most)
    pairs = [(one, other) for one, other, _ in SAME]
    expected = [same for _, _, same in SAME]
    assert [same_bits(*pair) for pair in pairs] == expected
    assert each_same_bits(pairs) == each_same_at_once(pairs) == expected
    assert each_same_bits([]) == each_same_at_once([]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("near", [1e-3, 1e-2, INF])
def test_the_quick_look_says_near_only_where_no_element_is_far(dtype, near):
    random = torch.Generator().manual_seed(1)
    said = []
    for off in (0.0, 1e-4, 3e-3, 2e-2, 1.0, INF, NAN):
        for scale in (0.0, 1e-3, 1.0, 1e4):
            other = scale * torch.randn(50, generator=random, dtype=torch.float64)
            one = other.to(dtype)
            one[7] += off * scale
            full = difference(one, other, None, Tolerance(0.0, 0.0), near=near)
            quick = is_near(one, other, near)
            assert full.is_loose or not quick
            said.append(quick)
    assert any(said) and not all(said)
    assert not is_near(torch.tensor([1, 2]), torch.tensor([1, 2]), near)


def test_truth_values_keep_their_order():
    flags = [torch.tensor(True), torch.tensor(False), torch.tensor(True)]
    assert as_bools(flags) == [True, False, True]
    assert as_bools([]) == []
