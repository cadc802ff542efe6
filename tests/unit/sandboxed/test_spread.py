"""What rounding alone may do, and what that allows a candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cudal1_ci.sandboxed.timing.timed_checks import is_close, timed_tolerances
from cudal1_ci.sandboxed.verifier import spread as spread_module
from cudal1_ci.sandboxed.verifier.cases import Rejected
from cudal1_ci.sandboxed.verifier.correctness import compare_values
from cudal1_ci.sandboxed.verifier.oracle import report_unknown, settle_tolerances
from cudal1_ci.sandboxed.verifier.rounding_noise import is_stated
from cudal1_ci.sandboxed.verifier.spread import (
    FEW_CALLS,
    MANY_CALLS,
    WINDOW,
    deviation,
    explain,
    extend,
    in_windows,
    learn_missing,
    widened,
)
from cudal1_ci.sandboxed.wire.runner import WIDE_UNITS
from tests.unit.sandboxed.test_learned_processes import learn
from tests.unit.sandboxed.test_noise import NAMES, case_of, learned

SIZE = 1024


def case_with(truth, monkeypatch, found, wide=None):
    """A case of inference with one output, and its spread by one unit and by more."""
    case, _ = case_of(train=False)
    case.expected.outputs = [[truth.clone()] for _ in case.trials]
    exact = truth.double() if truth.is_floating_point() else truth
    learned(case, [[exact.clone()] for _ in case.trials])
    asked = []

    def deviations(case, template, limits, numbers, num_calls, num_units=1):
        if num_units == 1:
            asked.append((tuple(numbers), num_calls))
        given = found if num_units == 1 or wide is None else wide
        return {number: [given] for number in numbers}

    monkeypatch.setattr(spread_module, "deviations", deviations)
    return case, asked


def case_of_jumps(truth, monkeypatch, number, by, autocast=None):
    """A case without an oracle, in which rounding moves the first elements so far."""
    jumps = torch.zeros(SIZE)
    jumps[:number] = by
    case, _ = case_with(truth, monkeypatch, jumps)
    case.autocast = autocast
    case.oracle, case.tolerances = [None] * len(NAMES), []
    settle_tolerances(case)
    learn_missing(case, None, None)
    return case


def verdict(case, got):
    """What becomes of outputs, where the spread is learned as it is needed."""
    return verdict_of(case, [[got] for _ in case.trials])


def verdict_of(case, outputs):
    """What becomes of outputs of each trial."""
    answer = type("Answer", (), {"outputs": outputs})
    try:
        compare_values(case, answer, lambda numbers: explain(case, None, None, numbers))
    except Rejected as rejected:
        return rejected.status
    return "passed"


def off_at(truth, place, by):
    changed = truth.clone()
    changed[place] += by
    return changed


@pytest.fixture
def truth():
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(0))


def test_eight_times_the_spread_of_an_element_is_right_and_more_is_not(truth, monkeypatch):
    found = torch.full((SIZE,), 1e-8)
    found[300] = 1e-4
    case, asked = case_with(truth, monkeypatch, found)
    assert verdict(case, off_at(truth, 300, 7e-4)) == "passed"
    assert asked == [((0,), MANY_CALLS), ((1, 2, 3), MANY_CALLS)]
    assert verdict(case, off_at(truth, 300, 1.1e-3)) == "precision"
    assert verdict(case, off_at(truth, 300 + WINDOW, 7e-4)) == "precision"
    assert len(asked) == 2, "it is learned once"


def test_what_is_within_the_budget_asks_for_nothing(truth, monkeypatch):
    case, asked = case_with(truth, monkeypatch, torch.full((SIZE,), 1.0))
    assert verdict(case, truth * (1 + 1e-7)) == "passed"
    assert verdict(case, truth * 1.5) == "incorrect_values"
    assert asked == []


def test_a_jump_allows_as_much_at_its_place_and_nothing_beside_it(truth, monkeypatch):
    found = torch.zeros(SIZE)
    found[300] = 0.5
    case, _ = case_with(truth, monkeypatch, found)
    assert verdict(case, off_at(truth, 300, 0.5)) == "passed"
    assert verdict(case, off_at(truth, 300, 0.6)) == "incorrect_values"
    assert verdict(case, off_at(truth, 301, 1e-3)) == "precision"


def test_what_more_units_reach_counts_as_far_as_they_reach(truth, monkeypatch):
    found, wide = torch.full((SIZE,), 1e-8), torch.full((SIZE,), 8e-8)
    wide[300], wide[400] = 0.5, 4e-3
    case, _ = case_with(truth, monkeypatch, found, wide)
    assert verdict(case, off_at(truth, 300, 0.5)) == "passed"
    assert verdict(case, off_at(truth, 300, 0.6)) == "incorrect_values"
    assert verdict(case, off_at(truth, 400, 3.9e-3)) == "passed"
    assert verdict(case, off_at(truth, 400, 5e-3)) == "precision"
    assert verdict(case, off_at(truth, 301, 1e-4)) == "precision"


def test_a_jump_to_infinity_allows_nothing(truth, monkeypatch):
    found = torch.zeros(SIZE)
    found[300] = torch.inf
    case, _ = case_with(truth, monkeypatch, found)
    assert verdict(case, off_at(truth, 300, 1e-3)) == "precision"


def test_where_everything_jumps_nothing_is_allowed(truth, monkeypatch):
    case, _ = case_with(truth, monkeypatch, torch.full((SIZE,), 0.5))
    assert verdict(case, off_at(truth, 300, 1e-3)) == "precision"


def test_never_more_than_precision_is_allowed(truth, monkeypatch):
    case, _ = case_with(truth, monkeypatch, torch.full((SIZE,), 5e-3))
    assert verdict(case, truth + 5e-3) == "passed"
    assert verdict(case, truth * 1.05) == "incorrect_values"


def test_whole_numbers_that_change_are_ties(monkeypatch):
    whole = torch.arange(SIZE)
    found = torch.zeros(SIZE)
    found[300] = 2.0
    case, _ = case_with(whole, monkeypatch, found)
    assert verdict(case, off_at(whole, 300, 2)) == "passed"
    assert verdict(case, off_at(whole, 300, 3)) == "incorrect_values"
    assert verdict(case, off_at(whole, 301, 1)) == "incorrect_values"


def test_timed_calls_have_the_same_places(truth, monkeypatch):
    found = torch.zeros(SIZE)
    found[300] = 1e-4
    case, _ = case_with(truth, monkeypatch, found)
    assert verdict(case, off_at(truth, 300, 7e-4)) == "passed"
    (budget,) = timed_tolerances(case, 1)
    calls = torch.stack([truth, truth])
    for place, same in ((300, True), (301, False)):
        assert is_close(off_at(calls, (1, place), 7e-4), calls, budget) is same


def test_infinities_deviate_without_end_and_equal_ones_not():
    one = torch.tensor([torch.inf, torch.inf, torch.nan, 1.0])
    other = torch.tensor([torch.inf, 1.0, torch.nan, 1.5])
    assert deviation(one, other).tolist() == [0.0, torch.inf, 0.0, 0.5]
    assert deviation(torch.tensor([True, False]), torch.tensor([True, True])).tolist() == [0, 1]


def test_many_outputs_at_once_deviate_as_each_does(monkeypatch):
    random = torch.Generator().manual_seed(2)
    shapes = [(3, 4), (1,), (7,), (2, 2, 2)]
    ours = [torch.randn(shape, generator=random) for shape in shapes]
    answers = [[one + torch.randn(one.shape, generator=random) for one in ours] for _ in range(3)]
    answers += [[*answers[0][:3], torch.full((2, 2, 2), torch.inf)], [*answers[1][:3], ours[3][:1]]]

    def extended(num_answers):
        found = [torch.zeros(one.shape) for one in ours]
        for theirs in answers[:num_answers]:
            extend(found, ours, theirs)
        return found

    at_once = [extended(number) for number in (3, 4, 5)]
    assert spread_module.extend_at_once([torch.zeros(3)], [torch.ones(3)], [torch.zeros(3)])
    monkeypatch.setattr(spread_module, "extend_at_once", lambda *_: False)
    for number, found in zip((3, 4, 5), at_once, strict=True):
        for one, other in zip(found, extended(number), strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("is_guessed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_jumps_nowhere_has_the_budget_that_a_look_at_each_element_gives(
    truth, monkeypatch, seed, is_guessed
):
    """The quick way out leaves the budget as it is only where each element would."""
    random = torch.Generator().manual_seed(seed)
    found = torch.rand(SIZE, generator=random) * 10.0 ** -(3 + 2 * seed)
    case, _ = case_with(truth, monkeypatch, found)
    settle_tolerances(case)
    budget = replace(case.tolerances[0][0], is_guessed=is_guessed)
    wide = found * WIDE_UNITS
    quick = widened(case, 0, 0, budget, found, wide)
    monkeypatch.setattr(spread_module, "loose", lambda dtype: -1.0)  # no quick way
    monkeypatch.setattr(spread_module, "most_of", lambda *_: torch.full((SIZE,), torch.inf))
    slow = widened(case, 0, 0, budget, found, wide)
    assert replace(quick, local=None) == replace(slow, local=None)
    assert (quick.local is None) == (slow.local is None)
    if quick.local is not None:
        assert torch.equal(quick.local, slow.local)


def test_a_window_is_the_root_mean_square_of_neighbors():
    found = torch.zeros(WINDOW + 4)
    found[:2], found[-1] = 3e-30, 1.0
    means = in_windows(found)
    assert means[0] == means[WINDOW - 1]
    assert float(means[-1]) == pytest.approx(0.5)


ABSENT = """
class Model(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        return x.sin().exp()
"""


@pytest.mark.starts_verifier
def test_without_an_oracle_the_spread_is_learned_and_the_budget_is_no_guess(template):
    case = learn(template, ABSENT)
    assert all(None in case.truth(number) for number in range(len(case.trials)))
    assert not any(one.is_guessed for budgets in case.tolerances for one in budgets)
    assert not any(one.rule == "oracle.absent" for one in case.findings)


def test_where_nothing_moves_nothing_is_known(truth, monkeypatch):
    for moves in (True, False):
        case, _ = case_with(truth, monkeypatch, torch.full((SIZE,), 1e-9 * moves))
        case.oracle, case.tolerances = [None] * 4, []
        settle_tolerances(case)
        learn_missing(case, None, None)
        report_unknown(case, "it raised")
        assert [one.rule for one in case.findings] == ["oracle.absent"] * (not moves)
        assert all(one.is_guessed is not moves for budgets in case.tolerances for one in budgets)


def test_few_calls_are_made_where_there_is_no_oracle(truth, monkeypatch):
    case, asked = case_with(truth, monkeypatch, torch.full((SIZE,), 1e-7))
    learn_missing(case, None, None)
    assert asked == []
    case.oracle[2] = None
    learn_missing(case, None, None)
    assert asked == [((2,), FEW_CALLS)]


@pytest.mark.parametrize(
    ("num_off", "by", "status"),
    [
        (80, 0.5, "passed"),
        (80, 1.5, "incorrect_values"),
        (1, float("nan"), "incorrect_values"),
        (120, 0.5, "incorrect_values"),
        (SIZE, 0.004, "passed"),
    ],
)
def test_as_many_elements_may_be_off_on_inputs_of_ours_as_jump(
    truth, monkeypatch, num_off, by, status
):
    case = case_of_jumps(truth, monkeypatch, 100, 0.5)
    off = truth.clone()
    off[-num_off:] += by
    numbers = [number for number in range(len(NAMES)) if not is_stated(case, number)]
    assert numbers and {number for number, _ in case.jumps} == set(numbers)
    outputs = [[off if number in numbers else truth.clone()] for number in range(len(NAMES))]
    assert verdict_of(case, outputs) == status
    report_unknown(case, "it raises")
    (finding,) = case.findings
    assert not any(f"`{NAMES[number]}`" in finding.message for number in numbers)


def test_on_stated_inputs_no_element_may_jump_where_many_do(truth, monkeypatch):
    case = case_of_jumps(truth, monkeypatch, 100, 0.5)
    off = truth.clone()
    off[0] += 0.5
    outputs = [[off if is_stated(case, n) else truth.clone()] for n in range(len(NAMES))]
    assert verdict_of(case, outputs) == "incorrect_values"


@pytest.mark.parametrize(
    ("train", "dtype", "moves", "by", "status"),
    [
        (True, torch.bfloat16, 0.02, 0.06, "passed"),
        (True, torch.bfloat16, 0.005, 0.06, "incorrect_values"),
        (True, torch.bfloat16, 0.02, 0.3, "incorrect_values"),
        (True, torch.float32, 0.02, 0.06, "incorrect_values"),
        (False, torch.bfloat16, 0.02, 0.06, "incorrect_values"),
    ],
)
def test_a_hundredth_is_no_limit_of_what_rounding_may_explain_in_bfloat16_in_training(
    truth, monkeypatch, train, dtype, moves, by, status
):
    """A loss that is the difference of logarithms: all its elements are off by that much."""
    truth = truth.to(dtype)
    case, _ = case_with(truth, monkeypatch, torch.full((SIZE,), moves))
    case.train = train
    assert verdict(case, truth + by) == status


@pytest.mark.parametrize(
    ("autocast", "share", "by", "status"),
    [
        ("bfloat16", 0.02, 0.03, "passed"),
        ("bfloat16", 0.02, 0.3, "incorrect_values"),
        (None, 0.02, 0.03, "incorrect_values"),
        ("bfloat16", 0.001, 0.03, "incorrect_values"),
    ],
)
def test_where_many_elements_jump_under_autocast_its_dtype_is_the_guess(
    truth, monkeypatch, autocast, share, by, status
):
    """A gradient in float32 behind products in bfloat16, of which float64 knows nothing."""
    case = case_of_jumps(truth, monkeypatch, int(share * SIZE), 5.0, autocast)
    case.jumps.clear()
    assert verdict(case, truth + by) == status
