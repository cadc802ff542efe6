"""When a pull request is slower, and when it only looks so."""

from __future__ import annotations

import random

import msgspec
import pytest

from cudal1_ci.records import Measurement, Repetition
from cudal1_ci.stats.regression import Thresholds, alarm, num_looks, slowdown, verdict_of, worst
from tests.fakes import CPU


def measured(ratio: float, *, noise: float = 0.002, base_us: float = 100.0, kind: str = "cpu"):
    """Five launches of a head that takes `ratio` times as long."""
    rng = random.Random(str((ratio, noise, base_us)))
    launches = []
    for _ in range(5):
        process = rng.gauss(1, noise)
        head = tuple(base_us * ratio * process for _ in range(4))
        launches.append(Repetition(reference_us=(base_us,) * 4, candidate_us=head, num_calls=9))
    device = msgspec.structs.replace(CPU, kind=kind)
    return Measurement(workload="w", repetitions=tuple(launches), device=device)


USUAL = Thresholds()


def test_a_slowdown_is_the_inverse_of_a_speedup():
    found = slowdown(measured(1.25))
    assert found.low < 1.25 < found.high
    assert found.estimate == pytest.approx(1.25, rel=0.005)


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (measured(1.10), "regression"),
        (measured(0.90), "improvement"),
        (measured(1.0), None),
        (measured(1.03), None),  # below five percent on a CPU
        (measured(1.03, kind="cuda"), "regression"),
        (measured(1.10, noise=0.2), None),  # above the threshold, and within the noise
        (measured(1.10, base_us=4.0), None),  # 0.4 us
    ],
)
def test_all_three_criteria_must_hold(measurement, expected):
    assert alarm(measurement, USUAL) == expected


def test_who_wants_to_know_of_less_says_so():
    assert alarm(measured(1.03), Thresholds(relative=0.02)) == "regression"
    assert alarm(measured(1.10, base_us=4.0), Thresholds(absolute_us=0.1)) == "regression"


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.10, 1.11], "regression"),
        ([0.90, 0.89], "improvement"),
        ([1.0], "same"),
        ([1.10, 1.0], "same"),  # once and not again, and the second excludes it
        ([1.10], "inconclusive"),  # not found again yet
        ([1.10, 0.90], "inconclusive"),
    ],
)
def test_an_alarm_is_one_when_it_was_found_again(ratios, expected):
    verdict, reason = verdict_of([measured(ratio) for ratio in ratios], USUAL, looks=2)
    assert verdict == expected
    assert (reason is not None) == (expected == "inconclusive")


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.10, 0.90], "was seen once and not again in new processes"),
        ([1.10, 1.04, 1.10], "was seen in 2 of 3 measurements"),
        ([1.04, 1.10, 1.10], "was seen in 2 of 3 measurements"),
        ([1.04, 1.04, 1.10], "was seen in 1 of 3 measurements"),
        ([1.04, 1.04, 1.04], "of 5 % can be neither seen nor excluded"),
    ],
)
def test_how_often_a_difference_was_seen_is_said(ratios, said):
    looks = [measured(ratio) for ratio in ratios[:-1]]
    looks.append(measured(ratios[-1], noise=0.06))
    verdict, reason = verdict_of(looks, USUAL, looks=4)
    assert (verdict, reason) == ("inconclusive", f"a difference {said}")


def test_what_can_be_neither_seen_nor_excluded_is_inconclusive():
    assert verdict_of([measured(1.0, noise=0.2)], USUAL, looks=2)[0] == "inconclusive"
    short = measured(1.0, noise=0.05, base_us=0.5)
    assert verdict_of([short], USUAL, looks=2) == ("same", None)


@pytest.mark.parametrize(
    ("count", "gpu", "cpu"),
    [(0, 2, 3), (1, 2, 3), (80, 2, 3), (81, 3, 3), (3200, 3, 3), (3300, 4, 4)],
)
def test_the_more_is_compared_the_more_often_an_alarm_must_be_found(count, gpu, cpu):
    assert (num_looks(count, "cuda"), num_looks(count, "cpu")) == (gpu, cpu)


def with_control(head: float, control: float) -> Measurement:
    """A head and a control that take so many times as long as the reference."""
    alone = measured(head)
    launches = tuple(
        msgspec.structs.replace(one, candidate_us=tuple(us * control for us in one.reference_us))
        for one in alone.repetitions
    )
    return msgspec.structs.replace(alone, control=launches)


def test_the_head_must_differ_from_both_processes_of_the_base():
    assert alarm(with_control(1.10, 1.0), USUAL) == "regression"
    assert alarm(with_control(0.90, 1.0), USUAL) == "improvement"
    # One process of the base was fast by accident; the head is as fast as the other.
    assert alarm(with_control(1.10, 1.10), USUAL) is None
    assert verdict_of([with_control(1.10, 1.10)], USUAL, looks=2)[0] == "inconclusive"


def test_a_control_that_was_timed_apart_is_no_yardstick():
    apart = msgspec.structs.replace(measured(1.10), control=measured(1.0, base_us=110).repetitions)
    assert alarm(apart, USUAL) == "regression"


def test_the_worst_decides():
    assert worst(["improvement", "same", "regression", "inconclusive"]) == "regression"
    assert worst(["improvement", "inconclusive"]) == "inconclusive"
    assert worst(["improvement", "same"]) == "improvement"
    assert worst([]) == "skipped"
