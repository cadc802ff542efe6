"""Known samples, known answers; and the rates at which the interval is wrong."""

from __future__ import annotations

import math
import random
import statistics

import msgspec
import pytest

from cudal1_ci.records import ContractCheck, Measurement, Repetition
from cudal1_ci.stats import speedups
from tests.fakes import CPU, a_candidate, a_measurement, a_problem, a_workload, an_evaluation


def launches(rng: random.Random, num: int, speedup: float, offset: float) -> tuple[Repetition, ...]:
    """Launches of ten rounds: an offset of each process, noise, and preempted rounds."""
    made = []
    for _ in range(num):
        reference = 100 * math.exp(rng.gauss(0, offset))
        candidate = 100 / speedup * math.exp(rng.gauss(0, offset))

        def times(base: float) -> tuple[float, ...]:
            return tuple(
                base * (1 + abs(rng.gauss(0, 0.01))) * (3.0 if rng.random() < 0.2 else 1.0)
                for _ in range(10)
            )

        made.append(
            Repetition(reference_us=times(reference), candidate_us=times(candidate), num_calls=5)
        )
    return tuple(made)


def test_the_speedup_is_the_ratio_of_the_times():
    found = speedups.speedup(a_measurement(speedup=4.0, spread=0.0))
    assert found.estimate == pytest.approx(4.0)
    assert found.low == pytest.approx(4.0)
    assert found.high == pytest.approx(4.0)


def test_preempted_rounds_do_not_move_the_estimate():
    quiet = Repetition(reference_us=(100.0,) * 8, candidate_us=(50.0,) * 8, num_calls=1)
    preempted = Repetition(
        reference_us=(100.0,) * 8, candidate_us=(50.0,) * 5 + (400.0,) * 3, num_calls=1
    )
    assert speedups.log_ratio(preempted, "cpu") == pytest.approx(speedups.log_ratio(quiet, "cpu"))


def test_four_rounds_of_thirty_without_an_interruption_suffice_on_a_cpu():
    rng = random.Random(0)
    found = []
    for _ in range(100):
        reference, candidate = (
            [us * rng.gauss(1, 0.005) for us in (base_us,) * 4]
            + [base_us * rng.uniform(1.5, 4) for _ in range(26)]
            for base_us in (100.0, 110.0)
        )
        one = Repetition(reference_us=tuple(reference), candidate_us=tuple(candidate), num_calls=1)
        found.append(speedups.log_ratio(one, "cpu"))
    assert statistics.fmean(found) == pytest.approx(-math.log(1.1), abs=0.005)
    assert statistics.stdev(found) < 0.01


def test_a_core_that_changes_its_speed_changes_both_sides_beside_a_gpu():
    speeds = (1.0, 1.7, 1.0, 1.7, 1.7, 1.0)
    launch = Repetition(
        reference_us=tuple(16.0 * one for one in speeds),
        candidate_us=tuple(8.0 * one for one in (*speeds[:3], 1.0, *speeds[4:])),
        num_calls=400,
    )
    assert speedups.log_ratio(launch, "cuda") == pytest.approx(math.log(2))
    gpu = msgspec.structs.replace(CPU, kind="cuda")
    measurement = Measurement(workload="w", repetitions=(launch,) * 5, device=gpu)
    divided = speedups.reference_us(measurement) / speedups.candidate_us(measurement)
    assert divided == pytest.approx(speedups.speedup(measurement).estimate)


@pytest.mark.parametrize(("kind", "widest"), [("cpu", 0.28), ("cuda", 0.11)])
def test_one_launch_says_as_much_as_launches_are_known_to_spread(kind, widest):
    one = Repetition(reference_us=(3.0,), candidate_us=(2.0,), num_calls=1)
    found = speedups.interval([one], kind)
    assert found.estimate == pytest.approx(1.5)
    assert found.high / 1.5 == pytest.approx(1.5 / found.low)
    assert widest - 0.03 < found.high / 1.5 - 1 < widest
    assert speedups.interval([], kind) is None


def test_the_interval_of_one_launch_is_wider_where_its_rounds_differ():
    """Of equal programs, whose rounds' ratios are off by 0.3: the interval of what launches are
    known to spread by alone is (0.91, 1.10)."""
    rng = random.Random(0)
    num_held = num_known = 0
    for _ in range(400):
        ratios = [math.exp(rng.gauss(0, 0.3)) for _ in range(12)]
        launch = Repetition(
            reference_us=tuple(100 * one for one in ratios),
            candidate_us=(100.0,) * 12,
            num_calls=1,
        )
        found = speedups.interval([launch], "cuda")
        num_held += found.low < 1 < found.high
        num_known += 0.91 < found.estimate < 1.10
    assert num_held > 0.95 * 400
    assert num_known < 0.75 * 400


def test_rounds_that_agree_leave_the_interval_of_one_launch_as_it_is():
    one = Repetition(reference_us=(30.0,) * 6, candidate_us=(20.0,) * 6, num_calls=1)
    slow = Repetition(reference_us=(30.0,) * 5 + (90.0,), candidate_us=(20.0,) * 6, num_calls=1)
    assert speedups.interval([slow], "cuda") == speedups.interval([one], "cuda")


@pytest.mark.parametrize("num_launches", speedups.LOOKS)
def test_the_interval_of_equal_programs_holds_1_as_often_as_it_says(num_launches):
    rng = random.Random(7)
    misses = 0
    for _ in range(400):
        found = speedups.interval(launches(rng, num_launches, 1.0, 0.02), "cpu")
        misses += not found.low <= 1 <= found.high
    # Each look may spend a third of 5 %: 1.7 % of 400 are 7; 16 is three deviations above.
    assert misses <= 16


def test_a_true_gain_of_a_tenth_is_found():
    rng = random.Random(8)
    found = [speedups.interval(launches(rng, 12, 1.1, 0.01), "cpu").low > 1.02 for _ in range(100)]
    assert sum(found) > 95


@pytest.mark.parametrize(
    ("speedup", "expected"), [(2.0, True), (1.01, False), (1.0, False), (0.5, False)]
)
def test_a_gain_clears_the_floor(speedup, expected):
    assert speedups.is_gain(a_measurement(speedup, spread=0.001)) is expected


def test_a_gain_of_less_than_half_a_microsecond_is_none():
    launch = Repetition(reference_us=(1.0,) * 3, candidate_us=(0.6,) * 3, num_calls=100)
    measurement = Measurement(workload="w", repetitions=(launch,) * 5, device=CPU)
    assert speedups.speedup(measurement).low > 1.6
    assert not speedups.is_gain(measurement)


def test_a_gain_smaller_than_the_sessions_noise_is_none():
    measurement = a_measurement(1.05, spread=0.0)
    noisy = a_measurement(1.0, spread=0.3)
    loud = Measurement(
        workload="w", repetitions=measurement.repetitions, control=noisy.control, device=CPU
    )
    assert speedups.is_gain(measurement)
    assert not speedups.is_gain(loud)


@pytest.mark.parametrize(
    ("speedup", "spread", "is_undecided"),
    [
        (4.0, 2.4, True),  # the interval reaches below 1
        (4.0, 0.1, False),  # a gain
        (1.05, 0.5, True),
        (1.05, 0.05, False),  # no gain as measurements go
        (1.0, 0.5, False),
        (0.5, 0.05, False),  # slower
    ],
)
def test_a_gain_that_noise_may_hide_is_not_decided(speedup, spread, is_undecided):
    measurement = a_measurement(speedup, spread=spread)
    found = msgspec.structs.replace(
        an_evaluation(a_candidate(a_problem(), "c")), measurements=(measurement,)
    )
    assert speedups.is_undecided(found) is is_undecided
    assert not (is_undecided and speedups.best([found], [a_workload("small")]) is not None)


def test_what_is_faster_or_slower_on_one_workload_is_decided_for_all():
    evaluation = an_evaluation(a_candidate(a_problem(), "c"))
    hidden = a_measurement(1.05, "a", spread=0.5)
    for speedup in (2.0, 0.5):
        both = (hidden, a_measurement(speedup, "b"))
        assert not speedups.is_undecided(msgspec.structs.replace(evaluation, measurements=both))


def test_a_gain_that_is_less_than_is_told_is_not_looked_for_again():
    noisy = a_measurement(1.3, spread=1.0)
    brief = [
        msgspec.structs.replace(
            launch,
            reference_us=tuple(one / 100 for one in launch.reference_us),
            candidate_us=tuple(one / 100 for one in launch.candidate_us),
        )
        for launch in noisy.repetitions
    ]
    assert speedups.is_hidden(noisy)
    assert not speedups.is_hidden(msgspec.structs.replace(noisy, repetitions=tuple(brief)))


def test_best_is_the_fastest_that_passed_and_is_slower_nowhere():
    problem = a_problem("r", a_workload("small"), a_workload("large"))
    names = ("small", "large")

    def evaluation(source, small, large):
        base = an_evaluation(a_candidate(problem, source), "passed", 1.0, names)
        measured = (a_measurement(small, "small"), a_measurement(large, "large"))
        return type(base)(
            candidate=base.candidate, verdict=base.verdict, measurements=measured, device=CPU
        )

    rows = [
        evaluation("uneven", 9.0, 0.5),
        evaluation("good", 2.0, 2.0),
        evaluation("better", 3.0, 2.5),
        evaluation("same", 1.0, 1.0),
        an_evaluation(a_candidate(problem, "wrong"), "incorrect_values"),
    ]
    assert speedups.best(rows, problem.workloads) == 2
    assert speedups.best(rows[3:], problem.workloads) is None
    assert speedups.best([], problem.workloads) is None


def test_what_was_timed_and_not_examined_is_no_proposal_beside_what_was():
    problem = a_problem()
    plain = [an_evaluation(a_candidate(problem, f"{n}"), speedup=n) for n in (4.0, 3.0, 2.0)]
    held = (ContractCheck(aspect="gradients", result="held"),)
    broken = (ContractCheck(aspect="gradients", result="broken"),)

    def best(*contracts):
        rows = [
            msgspec.structs.replace(one, contract=contract)
            for one, contract in zip(plain, contracts, strict=True)
        ]
        return speedups.best_examined(rows, problem.workloads)

    assert best(None, None, None) == 0, "nothing is examined here"
    assert best(None, held, None) == 1
    assert best(None, broken, held) == 2
    assert best(None, broken, None) is None


def test_best_weighs_workloads_by_their_share_of_the_time():
    problem = a_problem("r", a_workload("hot", share=0.9), a_workload("cold", share=0.1))

    def evaluation(source, hot, cold):
        base = an_evaluation(a_candidate(problem, source))
        measured = (a_measurement(hot, "hot"), a_measurement(cold, "cold"))
        return type(base)(
            candidate=base.candidate, verdict=base.verdict, measurements=measured, device=CPU
        )

    rows = [evaluation("cold wins", 1.1, 8.0), evaluation("hot wins", 2.0, 1.0)]
    assert speedups.best(rows, problem.workloads) == 1


def test_what_did_not_pass_scores_nothing():
    problem = a_problem()
    wrong = an_evaluation(a_candidate(problem), "reward_hack")
    assert speedups.score(wrong) == 0.0
    assert speedups.score(an_evaluation(a_candidate(problem), speedup=3.0)) == pytest.approx(
        3, 0.05
    )


def test_an_interval_includes_how_far_the_control_strays():
    """As two errors that do not depend on each other; equal code that is equal adds nothing."""
    alone = msgspec.structs.replace(a_measurement(speedup=2.0), control=())
    equal, apart = (
        msgspec.structs.replace(alone, control=a_measurement(speedup=one).repetitions)
        for one in (1.0, 1.5)
    )
    assert speedups.speedup(equal).low == pytest.approx(speedups.speedup(alone).low, rel=1e-3)
    found = speedups.speedup(apart)
    assert found.estimate == pytest.approx(2.0, rel=0.05)
    assert found.low <= found.estimate / 1.45
    assert found.high >= found.estimate * 1.45
