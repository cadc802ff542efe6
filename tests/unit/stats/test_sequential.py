"""The interval that is valid at every look: known values, and the rates at which it is wrong."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from cudal1_ci.records import Repetition
from cudal1_ci.stats.sequential import LEVEL, MIXTURE, WEIGHT, half_width, out_of_reach
from cudal1_ci.stats.stopping import StopRule, is_settled

MOST = 12


def ratio_of_densities(ratios, control, spread, mean):
    """The martingale itself, as sequential.py's text states it."""
    count = len(ratios)
    middle = statistics.fmean(ratios)
    squares = WEIGHT * spread**2 + sum(one**2 for one in control)
    squares += sum((one - middle) ** 2 for one in ratios)
    distance = count * (middle - mean) ** 2
    growth = 1 + count * MIXTURE
    power = (WEIGHT + count + len(control)) / 2
    return ((squares + distance) / (squares + distance / growth)) ** power / math.sqrt(growth)


@pytest.mark.parametrize("control", [(), (0.02, -0.01)])
def test_at_its_ends_the_ratio_of_densities_is_one_over_the_level(control):
    ratios = (0.31, 0.28, 0.33)
    half = half_width(ratios, control, 0.02)
    for end in (statistics.fmean(ratios) - half, statistics.fmean(ratios) + half):
        assert ratio_of_densities(ratios, control, 0.02, end) == pytest.approx(1 / LEVEL)


def test_two_repetitions_settle_a_large_effect_and_a_spread_widens_the_interval():
    quiet = half_width([0.69, 0.70], [0.0, 0.01], 0.01)
    assert quiet < 0.05
    assert half_width([0.69, 0.70], [0.3, -0.2], 0.01) > 5 * quiet, "the control's spread counts"
    assert half_width([0.5, 0.9], [0.0, 0.01], 0.01) > 5 * quiet
    assert half_width([0.69, 0.70], [0.0, 0.01], 0.1) > 5 * quiet


def share_of_misses(spread: float, rng: random.Random, num_runs: int) -> float:
    """Of runs in which the truth is outside of the interval at any look, where repetitions spread
    by `spread` times what the prior says. Candidate and control share their reference."""
    misses = 0
    for _ in range(num_runs):
        ratios, control = [], []
        for _ in range(MOST):
            reference, *others = (rng.gauss(0, spread / math.sqrt(2)) for _ in range(3))
            ratios.append(reference - others[0])
            control.append(reference - others[1])
            if len(ratios) < 2:
                continue
            if abs(statistics.fmean(ratios)) > half_width(ratios, control, 1.0):
                misses += 1
                break
    return misses / num_runs


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0, 3.0])
def test_the_truth_is_outside_at_any_of_twelve_looks_less_often_than_the_level(spread):
    # In 10^5 runs it was 0.0001, 0.006, 0.025, 0.041 (assets/results/sequential-errors.json).
    assert share_of_misses(spread, random.Random(5), 1500) < LEVEL + 0.01


def settled_after(
    ratios: list[float],
    control: list[float],
    settles: str = "gain",
    same_within: float | None = None,
) -> int:
    """The number of repetitions at which measuring stops."""
    for count in range(2, MOST + 1):
        pairs = zip(ratios[:count], control[:count], strict=True)
        ours, theirs = [], []
        for ratio, stray in pairs:
            one = [100.0 * math.exp(-log) for log in (ratio, stray)]
            ours.append(Repetition(reference_us=(100.0,), candidate_us=(one[0],), num_calls=1))
            theirs.append(Repetition(reference_us=(100.0,), candidate_us=(one[1],), num_calls=1))
        if is_settled(ours, theirs, "cpu", 0.03, StopRule(0.01, settles, same_within)):
            return count
    raise AssertionError("it stops at the most")


def test_what_is_plainly_the_same_need_not_be_known_better():
    rng = random.Random(1)
    noise = [[rng.gauss(0, 0.01) for _ in range(MOST)] for _ in range(2)]
    exactly = settled_after(*noise, settles="difference")
    assert settled_after(*noise, settles="difference", same_within=0.05) < exactly
    assert settled_after(*noise, settles="difference", same_within=0.001) == exactly
    slower = [one - math.log(1.06) for one in noise[0]]
    known = settled_after(slower, noise[1], settles="difference")
    assert settled_after(slower, noise[1], settles="difference", same_within=0.05) == known


def test_a_claim_that_is_out_of_reach_is_given_up_early():
    rng = random.Random(1)
    noise = [[rng.gauss(0, 0.09) for _ in range(MOST)] for _ in range(2)]
    assert settled_after(*noise) <= 4
    assert settled_after(*noise, settles="difference") == MOST, "which is no claim"
    faster = [one + math.log(1.25) for one in noise[0]]
    assert settled_after(faster, noise[1]) > 4


def test_what_is_out_of_reach_depends_on_what_can_still_come():
    floor, ratios, control = math.log(1.02), [math.log(1.03)] * 3, [0.03, -0.03, 0.0]
    assert not out_of_reach(ratios, control, 0.05, floor, MOST)
    assert out_of_reach(ratios * 3, control * 3, 0.05, floor, MOST)
    assert not out_of_reach([math.log(1.1)] * 9, control * 3, 0.05, floor, MOST)
