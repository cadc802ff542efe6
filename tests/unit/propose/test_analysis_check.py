"""Numbers of an analysis: which sentences state one, and which were measured to be another."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.propose.llm.analysis_check import OPERATORS, claims_in, contradictions, share_of
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.records import Device, Measurement, Repetition
from tests.fakes import a_candidate, a_problem, an_evaluation

H200 = Device(kind="cuda", name="NVIDIA H200")


def rows(**times_us: float) -> tuple[ProfileRow, ...]:
    return tuple(ProfileRow(name=n, num_calls=1, time_us=t) for n, t in times_us.items())


def found(analysis, profile=(), reference_us=100.0, speedup=2.0):
    problem = a_problem("x")
    candidate = msgspec.structs.replace(a_candidate(problem), analysis=analysis)
    launches = tuple(
        Repetition(
            reference_us=(reference_us * (1 + i / 100),) * 3,
            candidate_us=(reference_us / speedup,) * 3,
            num_calls=9,
        )
        for i in range(-2, 3)
    )
    measured = Measurement(workload="small", repetitions=launches, device=H200)
    evaluation = msgspec.structs.replace(
        an_evaluation(candidate), measurements=(measured,), device=H200
    )
    return [one.measured for one in contradictions(evaluation, problem, profile)]


@pytest.mark.parametrize(
    "claim",
    [
        "Softmax takes 80% of the runtime.",
        "- **The `softmax` call accounts for about 80 % of the total time**, since it reads twice.",
        "80% of the time is spent in softmax.",
    ],
)
def test_an_operator_with_too_little_of_the_time_has_not_that_share(claim):
    assert found(claim, rows(softmax_kernel=4.0, sgemm=96.0)) == [
        "softmax has at most 4% of the profiled time of one call of the reference on NVIDIA H200 "
        "(small)"
    ]


@pytest.mark.parametrize(
    "profile",
    [
        rows(softmax_kernel=80.0, sgemm=20.0),
        rows(softmax_kernel=76.0, sgemm=24.0),  # a profile is not that exact
        rows(softmax_kernel=90.0, sgemm=10.0),  # the rows may hold more than the operator
        rows(sgemm=100.0),  # it may be there under a name that nobody knows
        rows(softmax_kernel=4.0, triton_poi_fused_1=96.0),  # or in what was fused
        rows(softmax_kernel=4.0, flash_fwd_kernel=96.0),
        (),
    ],
)
def test_an_operator_that_may_have_the_share_is_left(profile):
    assert found("Softmax takes 80% of the time.", profile) == []


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_found_in_a_sentence_and_in_a_row_of_its_name(operator):
    row = f"aten::{operator.replace(' ', '_')}"
    row = {"aten::concatenation": "aten::cat"}.get(row, row)
    assert share_of(operator, rows(**{row: 1.0, "zz": 3.0})) == 0.25
    assert share_of(operator, rows(zz=3.0)) is None
    assert share_of(operator, rows(**{row: 0.0})) is None
    (said,) = found(f"The {operator} takes 90% of the time.", rows(**{row: 1.0, "zz": 3.0}))
    assert said.startswith(f"{operator} has at most 25%")


def test_a_speedup_outside_of_the_interval_is_contradicted():
    (said,) = found("This is 5x faster.", speedup=2.0)
    assert said.startswith("measured 2.00x [1.9")
    assert said.endswith("] on NVIDIA H200 (small)")


@pytest.mark.parametrize("number", ["2x", "1.98x", "2.0x", "1.6x"])
def test_a_speedup_that_the_interval_or_its_rounding_holds_is_left(number):
    assert bool(found(f"This is {number} faster.", speedup=2.0)) is (number == "1.6x")


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("The reference takes 3 ms.", ["measured 100 us on NVIDIA H200 (small)"]),
        ("The reference takes 3 microseconds.", ["measured 100 us on NVIDIA H200 (small)"]),
        ("The new kernel takes about 20 us per call.", ["measured 50 us on NVIDIA H200 (small)"]),
        ("The reference takes 0.1 ms.", []),
        ("The reference takes 95 us on this GPU.", []),
        ("The reference takes 95 µs.", []),
        ("The fused version runs in 0.05 milliseconds.", []),
        ("The reference takes 3 ms for the loop over heads.", []),
        ("Each launch takes 3 ms.", []),
    ],
)
def test_a_time_is_held_against_the_call_that_it_is_of(claim, said):
    assert found(claim) == said


def test_what_was_not_measured_contradicts_nothing():
    problem = a_problem()
    candidate = msgspec.structs.replace(a_candidate(problem), analysis="This is 9x faster.")
    evaluation = an_evaluation(candidate, "incorrect_values")
    assert contradictions(evaluation, problem, ()) == ()


def test_between_two_workloads_a_number_may_be_of_both():
    problem = a_problem()
    candidate = msgspec.structs.replace(a_candidate(problem), analysis="This is 3x faster.")
    one = an_evaluation(candidate, "passed", 2.0)
    other = an_evaluation(candidate, "passed", 4.0, ["large"])
    both = msgspec.structs.replace(one, measurements=one.measurements + other.measurements)
    assert contradictions(both, problem, ()) == ()
    assert len(contradictions(one, problem, ())) == 1


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("This is 2x faster.", "speedup", "2"),
        ("The new version is about 3.5 times faster than the reference.", "speedup", "3.5"),
        ("It will be 10x faster, since nothing is written.", "speedup", "10"),
        ("The fused kernel gives a speedup of 4x over the baseline.", "speedup", "4"),
        ("This achieves a 2.25x speedup.", "speedup", "2.25"),
        ("The overall speedup is 3x.", "speedup", "3"),
        ("The original module needs 1.5 ms.", "reference time", "1.5"),
        ("This takes 12 us, as one kernel does it all.", "candidate time", "12"),
        ("Conv2d takes 60 % of its runtime.", "share", "60"),
    ],
)
def test_which_sentences_state_a_number(text, kind, number):
    ((sentence, seen, match),) = claims_in(f"First of all.\n{text} And more.")
    assert (sentence, seen, match["number"]) == (text, kind, number)


@pytest.mark.parametrize(
    "text",
    [
        "This could be 2x faster.",
        "This should be 2x faster.",
        "This is not 2x faster.",
        "This is up to 2x faster.",
        "This is at least 2x faster.",
        "This is 2x faster than variant 1.",
        "This is 2x faster than a loop in Python.",
        "This is 2x faster for long rows.",
        "This is 2x faster, if the input is contiguous.",
        "The softmax is 2x faster.",
        "Half precision is 2x faster than single.",
        "This reads 2x less memory.",
        "This needs 2x fewer launches.",
        "Variant 2 has a speedup of 1.8x.",
        "The speedup of variant 2 is 1.8x.",
        "This is 50% faster.",
        "This is faster.",
        "If fused, this is 2x faster.",
        "Softmax dominates the runtime.",
        "Softmax would take 80% of the time.",
        "Softmax takes 80% of the time of variant 1.",
        "Softmax takes 80% of the memory traffic.",
        "Does softmax take 80% of the time?",
        "The softmax of the remaining rows takes 80% of the time.",
    ],
)
def test_a_sentence_that_only_looks_like_it_states_none(text):
    assert list(claims_in(text)) == []


def test_each_sentence_is_read_by_itself_and_numbers_do_not_end_one():
    text = "The baseline takes 2.5 ms. Softmax takes 8.5% of the time; This is 2.5x faster!"
    assert [kind for _, kind, _ in claims_in(text)] == ["reference time", "share", "speedup"]
    assert list(claims_in("")) == []
    assert list(claims_in("This is 2x faster, as " + "z" * 400)) == []


def test_a_long_text_is_read_in_a_moment():
    hostile = ("the " * 70 + "is 2x" + ". ") * 500 + "a" * 100_000
    assert list(claims_in(hostile)) == []
