"""What counts as rounding of the reference, and what a candidate may be off by there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.runner.subject import generators_among
from cudal1_ci.sandboxed.timing.timed_checks import noise_left, timed_tolerances
from cudal1_ci.sandboxed.verifier.cases import Case, Rejected
from cudal1_ci.sandboxed.verifier.correctness import compare_values
from cudal1_ci.sandboxed.verifier.oracle import accept, known_errors, settle_tolerances
from cudal1_ci.sandboxed.wire.arguments import Call
from tests.unit.sandboxed.messages import called, text

NAMES = ("drawn 0", "drawn 1", "zeros", "drawn 2")
ZEROS, STATED, ALL = 2, (0, 1, 3), (0, 1, 2, 3)
OUTPUT, WEIGHT, BIAS, STEPS = range(4)
"""What a call returns, two gradients and a buffer of whole numbers."""
SIZE = 64
NOISE, LEFT = 1e-6, 1e-15
"""What float32 and float64 leave of a zero."""
GENERATOR = torch.Generator().manual_seed(0)


def randn(scale=1.0):
    return scale * torch.randn(SIZE, dtype=torch.float64, generator=GENERATOR)


def trial_of(dtype):
    """What a reference of that precision answers on a set of inputs, and the truth of it."""
    truth = [randn(), randn(), randn(LEFT), torch.tensor([1])]
    noise = NOISE * torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
    said = [truth[OUTPUT].to(dtype), truth[WEIGHT].to(dtype), randn(noise).to(dtype), truth[STEPS]]
    return said, truth


def case_of(dtype=torch.float32, train=True, given=None):
    """A case with that reference, and its oracle."""
    answers = [trial_of(dtype) for _ in NAMES]
    calls = [called() for _ in NAMES]
    case = Case(
        name="w",
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        program=text(),
        train=train,
        call=Call(),
        init=None,
        init_slots=[],
        init_tensors=[],
        source=None,
        given=given,
        seed=0,
        trials=[(name, None) for name in NAMES],
    )
    case.expected = SimpleNamespace(outputs=[said for said, _ in answers], calls=calls)
    return case, [truth for _, truth in answers]


def learned(case, oracle):
    reason = accept(case, oracle)
    settle_tolerances(case)
    case.known = known_errors(case)
    return reason


def passes(case, leaf, change, trials=ALL):
    """Whether a candidate is right that is off from the reference there alone."""
    outputs = [list(one) for one in case.expected.outputs]
    for number in trials:
        outputs[number][leaf] = change(outputs[number][leaf])
    answer = SimpleNamespace(outputs=outputs)
    try:
        compare_values(case, answer)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gradient_of_zero_may_be_anything_as_small_as_the_references_rounding(dtype):
    case, oracle = case_of(dtype)
    assert learned(case, oracle) is None
    assert case.noise.keys() == {BIAS}
    for change in (torch.zeros_like, torch.neg, lambda one: one.flip(0), lambda one: 3 * one):
        assert passes(case, BIAS, change)
    assert not passes(case, BIAS, lambda one: 10 * one)
    assert not passes(case, BIAS, lambda one: torch.full_like(one, 100 * float(one.abs().max())))
    assert not passes(case, BIAS, lambda one: one.where(torch.arange(SIZE) > 0, float("nan")))


def test_beside_it_the_budgets_are_those_of_the_oracle():
    case, oracle = case_of()
    learned(case, oracle)
    for leaf in (OUTPUT, WEIGHT):
        assert passes(case, leaf, lambda one: one * (1 + 1e-7))
        assert not passes(case, leaf, lambda one: one * (1 + 2e-5))
    without = case_of()[0]
    settle_tolerances(without)
    assert passes(without, WEIGHT, lambda one: one * (1 + 2e-5))
    assert not passes(without, BIAS, torch.zeros_like)


def test_of_noise_no_relative_error_is_told():
    case, oracle = case_of()
    learned(case, oracle)
    zeros = [[*one[:BIAS], torch.zeros(SIZE), one[STEPS]] for one in case.expected.outputs]
    assert compare_values(case, SimpleNamespace(outputs=zeros))[1] < 1e-6


def real_in_one_trial(case, oracle):
    oracle[1][BIAS] = randn()
    case.expected.outputs[1][BIAS] = oracle[1][BIAS].float()


def real_and_small(case, oracle):
    for truth in oracle:
        truth[BIAS] = randn(NOISE / 100)


def lost_in_float64(case, oracle):
    for truth in oracle:
        truth[BIAS] = torch.zeros(SIZE, dtype=torch.float64)


def returned(case, oracle):
    one = called()
    three = {name: getattr(one, name) * 3 for name in ("types", "aliases", "shares", "slots")}
    case.expected.calls = [called(**three, num_leaves=3) for _ in NAMES]


def of_inference(case, oracle):
    case.train = False


def other_counts(case, oracle):
    case.expected.outputs[0].append(torch.ones(1))
    oracle[0].append(torch.ones(1, dtype=torch.float64))


def infinite(case, oracle):
    case.expected.outputs[0][BIAS][0] = float("inf")


def other_integers(case, oracle):
    oracle[ZEROS][STEPS] = torch.tensor([2])


def other_shapes(case, oracle):
    oracle[0] = oracle[0][:2]


def another_function(case, oracle):
    oracle[0][WEIGHT] = 2 * oracle[0][WEIGHT]


@pytest.mark.parametrize(
    ("changed", "reason", "without"),
    [
        (real_in_one_trial, "gradient 1 differs", {0, 3}),
        (real_and_small, "gradient 1 differs", set(ALL)),
        (lost_in_float64, "gradient 1 differs", set(ALL)),
        (returned, "output 2 differs", set(ALL)),
        (of_inference, "gradient 1 differs", set(ALL)),
        (other_counts, "gradient 1 differs", set(ALL)),
        (infinite, "gradient 1 differs", {0}),
        (other_integers, "gradient 2 holds other integers", {ZEROS}),
        (other_shapes, "its outputs have other shapes", {0}),
        (another_function, "gradient 0 differs", {0}),
    ],
)
def test_what_is_more_than_rounding_leaves_its_inputs_without_an_oracle(changed, reason, without):
    case, oracle = case_of()
    changed(case, oracle)
    found = learned(case, oracle)
    assert found is not None and found.startswith(reason)
    assert {number for number in ALL if None in case.truth(number)} == without
    assert case.usual == [] if without == set(ALL) else len(case.usual) == 4
    assert not passes(case, BIAS, lambda one: one + 0.5)


def test_a_sum_that_is_exact_by_chance_is_noise_all_the_same():
    case, oracle = case_of()
    for number in (1, ZEROS):
        case.expected.outputs[number][BIAS] = torch.zeros(SIZE)
    assert learned(case, oracle) is None
    assert case.noise.keys() == {BIAS}
    assert passes(case, BIAS, lambda one: one + NOISE)
    assert not passes(case, BIAS, lambda one: one + 100 * NOISE)


@pytest.mark.parametrize("truth", [0.0, 1e-4])
def test_where_inputs_are_not_stated_who_is_as_far_off_as_the_reference_is_right(truth):
    case, oracle = case_of()
    oracle[ZEROS][WEIGHT] = torch.full((SIZE,), truth, dtype=torch.float64)
    case.expected.outputs[ZEROS][WEIGHT] = randn(1e-4).float()
    assert learned(case, oracle) is None
    assert case.noise.keys() == {BIAS}
    assert passes(case, WEIGHT, lambda one: -one, [ZEROS])
    assert not passes(case, WEIGHT, lambda one: 20 * one, [ZEROS])
    assert not passes(case, WEIGHT, lambda one: one + 1e-4, STATED)


def test_in_inference_the_reference_is_to_be_explained_on_all_inputs():
    case, oracle = case_of(train=False)
    for number in range(len(NAMES)):
        oracle[number][BIAS] = case.expected.outputs[number][BIAS].double()
    case.expected.outputs[ZEROS][WEIGHT] = randn(1e-4).float()
    assert "differs" in learned(case, oracle)


def test_on_other_weights_noise_is_as_large_as_on_those_of_the_trials_and_a_gradient_is_seen():
    case, oracle = case_of()
    learned(case, oracle)

    def worst(expected, got):
        outputs = [list(case.expected.outputs[0]) for _ in range(2)]
        outputs[0][BIAS], outputs[1][BIAS] = expected.float(), got.float()
        return case.differences(outputs[1], outputs[0])[BIAS].excess

    assert worst(randn(NOISE), torch.zeros(SIZE)) <= 1
    assert worst(randn(NOISE), randn(100 * NOISE)) > 1
    assert worst(randn(), torch.zeros(SIZE)) > 1


def test_what_timed_calls_leave_of_noise_is_a_sum_over_them():
    case, oracle = case_of()
    learned(case, oracle)
    lane = SimpleNamespace(slots=[[]] * 5)
    # Of the parameters' gradients and the state, counted from the end.
    assert noise_left(case, -2, lane) == 5 * case.noise[BIAS] > 0
    assert noise_left(case, -3, lane) == 0
    budget = timed_tolerances(case, 3)[BIAS]
    assert 8 * NOISE < budget.absolute < 100 * NOISE


def test_the_users_tolerance_stands():
    case, oracle = case_of(given=(1e-9, 0.0))
    learned(case, oracle)
    assert {one.absolute for budgets in case.tolerances for one in budgets} == {1e-9}
    assert not passes(case, BIAS, torch.zeros_like)


def test_generators_are_found_in_deep_models_at_once():
    """A search that looked at a module again in each module around it would not end here."""
    model = torch.nn.Linear(1, 1)
    model.draws = [torch.Generator()]
    found = model.draws[0]
    for _ in range(60):
        model = torch.nn.Sequential(model, torch.nn.ReLU())
    assert [id(one) for one in generators_among([model, {"again": model}])] == [id(found)]


def lost_case(dtype, trials, autocast=None):
    """A case of inference whose reference returns zeros in place of what float64 holds."""
    case, oracle = case_of(dtype, train=False)
    case.autocast = autocast
    for number, truth in enumerate(oracle):
        truth[BIAS] = case.expected.outputs[number][BIAS].double()
    for number in trials:
        case.expected.outputs[number][OUTPUT] = torch.zeros(SIZE, dtype=dtype)
    learned(case, oracle)
    return case, oracle


@pytest.mark.parametrize(("trial", "is_right"), [(ZEROS, True), (1, False)])
def test_what_float64_holds_is_right_where_the_reference_lost_it(trial, is_right):
    """Squares that overflow, on inputs that the workload does not state."""
    case, oracle = lost_case(torch.float16, [trial])
    truth = oracle[trial][OUTPUT].half()
    assert passes(case, OUTPUT, lambda said: said, [trial])
    assert passes(case, OUTPUT, lambda said: truth, [trial]) is is_right
    assert not passes(case, OUTPUT, lambda said: truth + 0.02, [trial])
    assert not passes(case, OUTPUT, lambda said: truth / 2, [trial])


def test_float64_is_not_right_where_it_knows_nothing_of_stated_inputs():
    case, oracle = lost_case(torch.float16, ALL)
    truth = oracle[ZEROS][OUTPUT].half()
    assert not case.lost
    assert not passes(case, OUTPUT, lambda said: truth, [ZEROS])


def test_under_autocast_what_was_lost_has_the_tolerance_of_its_dtype():
    case, oracle = lost_case(torch.float32, [ZEROS], "bfloat16")
    truth = oracle[ZEROS][OUTPUT].float()
    assert passes(case, OUTPUT, lambda said: truth.bfloat16().float(), [ZEROS])
    assert not passes(case, OUTPUT, lambda said: truth * 1.1, [ZEROS])
