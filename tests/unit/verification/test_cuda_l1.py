"""The paper's rules, on times with known answers and a session that is told what to say."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.records import (
    Candidate,
    Device,
    Evaluation,
    Measurement,
    Problem,
    Repetition,
    TextProgram,
    Verdict,
)
from cudal1_ci.stats import speedups
from cudal1_ci.verification import cuda_l1

PROGRAM = TextProgram(source="class Model: ...", entry="Model")
PROBLEM = Problem(reference=PROGRAM, workloads=())
CANDIDATE = Candidate(problem_id=PROBLEM.id, program=PROGRAM, proposer="test")


def measured(ratios):
    launch = Repetition(
        reference_us=tuple(100.0 * r for r in ratios),
        candidate_us=(100.0,) * len(ratios),
        num_calls=1,
    )
    return Measurement(workload="w", repetitions=(launch,), device=Device(kind="cpu", name="x"))


def evaluation(*ratios):
    return Evaluation(
        candidate=CANDIDATE,
        verdict=Verdict(status="passed"),
        measurements=(measured(ratios),) if ratios else (),
    )


class Told:
    """A session that answers with what it is told, in turn."""

    def __init__(self, *evaluations):
        self.evaluations = list(evaluations)

    def evaluate(self, problem, candidate):
        return self.evaluations.pop(0)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.118, 1.11), (0.992, 1.0), (1.15, 1.15), (0.981, 0.99), (2.0, 2.0), (1.0, 1.0)],
)
def test_speedups_are_rounded_toward_one(ratio, expected):
    assert speedups.cuda_l1_speedup(measured([ratio] * 14)) == expected


def test_the_median_of_the_bucket_means_counts_and_not_the_mean_of_all():
    ratios = [1.5] * 12 + [1.6, 1.6]  # the last bucket is an outlier
    assert speedups.cuda_l1_speedup(measured(ratios)) == 1.5


@pytest.mark.parametrize("ratios", [[2.0] * 6, [1.0] * 6 + [1.5] * 8])
def test_too_few_or_too_varied_times_are_thrown_away(ratios):
    assert speedups.cuda_l1_speedup(measured(ratios)) is None
    found = cuda_l1.evaluate(Told(evaluation(*ratios)), PROBLEM, CANDIDATE)
    assert (found.verdict.status, found.verdict.findings[0].rule) == (
        "inconclusive",
        "policy.variance",
    )
    assert found.measurements == ()


@pytest.mark.parametrize(
    ("first", "second", "best", "status"),
    [
        (1.5, None, None, "passed"),
        (3.5, 3.4, None, "passed"),
        (3.5, 2.0, None, "inconclusive"),
        (2.5, 1.2, 1.2, "inconclusive"),
        (2.5, 2.4, 1.2, "passed"),
        (2.5, None, 2.0, "passed"),
    ],
)
def test_a_jump_is_measured_again_before_it_counts(first, second, best, status):
    told = Told(evaluation(*[first] * 14), *([evaluation(*[second] * 14)] if second else []))
    found = cuda_l1.evaluate(told, PROBLEM, CANDIDATE, best)
    assert found.verdict.status == status
    assert told.evaluations == [], "measured again exactly where it had to be"


def test_what_did_not_pass_is_left_as_it_is():
    failed = msgspec.structs.replace(
        evaluation(), verdict=Verdict(status="incorrect_values"), measurements=()
    )
    assert cuda_l1.evaluate(Told(failed), PROBLEM, CANDIDATE) is failed
