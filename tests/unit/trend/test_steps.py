"""Steps, on series whose steps are known and on noise that has none."""

from __future__ import annotations

import math
import random

import pytest

from cudal1_ci.trend.steps import MAX_POINTS, level_of, level_starts, noise


def series(*levels: tuple[float, int], noise: float = 0.01, seed: int = 1) -> list[float]:
    """Times around levels, each for so many commits."""
    generator = random.Random(seed)
    return [
        level * math.exp(generator.gauss(0, noise)) for level, count in levels for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("times", "starts"),
    [
        ([], ()),
        ([5.0], (0,)),
        ([5.0, 5.0], (0,)),
        ([2.0, 2.01, 1.99, 2.3, 2.31, 2.29], (0, 3)),
        (series((10, 20), (11, 20)), (0, 20)),
        (series((10, 12), (11.5, 8), (10, 10)), (0, 12, 20)),
        (series((100, 15), (40, 15), (41.5, 60), noise=0.004), (0, 15, 30)),
        (series((10, 30), (10.5, 30), (11.025, 30), noise=0.008), (0, 30, 60)),
    ],
)
def test_a_step_is_found_where_it_is(times, starts):
    assert level_starts(times, smallest=0.02) == starts


def test_two_commits_at_the_end_show_a_step_and_one_does_not():
    before = series((10, 25))
    assert level_starts([*before, 12.0], 0.02) == (0,)
    assert level_starts([*before, 12.0, 12.1], 0.02) == (0, 25)


@pytest.mark.parametrize("outlier", [1.5, 3.0, 100.0, 0.1])
def test_a_single_outlier_is_no_step_however_far_off_it_is(outlier):
    times = series((10, 40))
    times[17] *= outlier
    assert level_starts(times) == (0,)


def test_a_step_is_found_among_outliers():
    times = series((10, 30), (11, 30))
    for place in (4, 13, 22, 41, 55):
        times[place] *= 2
    assert level_starts(times, 0.02) == (0, 30)


def test_what_is_smaller_than_asked_for_is_no_step():
    times = series((100, 40), (101.5, 40), noise=0.002)
    assert level_starts(times) == (0, 40)
    assert level_starts(times, smallest=0.02) == (0,)


def test_times_without_any_noise_have_no_steps_of_rounding():
    assert level_starts([1.0, 1.0, 1.001, 1.0, 1.001] * 10) == (0,)


def test_a_level_is_the_median_of_its_commits():
    assert level_of([1.0, 100.0, 2.0]) == 2.0
    assert level_of([1.0, 4.0]) == 2.0


def test_noise_is_measured_beside_steps_and_outliers():
    logs = [math.log(t) for t in series((10, 100), (20, 100), (5, 100), noise=0.013)]
    assert noise(logs) == pytest.approx(0.013, rel=0.25)


def test_of_a_very_long_series_the_end_is_fitted():
    times = series((10, MAX_POINTS), (12, 50), noise=0.01)
    assert level_starts(times, 0.02) == (0, MAX_POINTS)


NOISES = {
    "normal": lambda r: r.gauss(0, 0.02),
    "two-sided exponential": lambda r: r.choice((-1, 1)) * r.expovariate(1 / 0.015),
    "with outliers": lambda r: r.gauss(0, 0.01) + (0.3 if r.random() < 0.03 else 0),
}


@pytest.mark.parametrize("draw", NOISES.values(), ids=NOISES)
def test_of_a_hundred_series_of_noise_at_most_one_shows_a_step_of_five_percent(draw):
    generator = random.Random(1)
    num_alarms = sum(
        len(level_starts([100 * math.exp(draw(generator)) for _ in range(60)], 0.05)) > 1
        for _ in range(300)
    )
    assert num_alarms <= 3


@pytest.mark.parametrize("draw", NOISES.values(), ids=NOISES)
def test_of_a_hundred_series_of_noise_at_most_five_show_a_step_of_any_size(draw):
    generator = random.Random(2)
    num_alarms = sum(
        len(level_starts([100 * math.exp(draw(generator)) for _ in range(60)])) > 1
        for _ in range(300)
    )
    assert num_alarms <= 15


def test_a_step_of_five_noises_is_found_in_nineteen_of_twenty_series():
    found = [
        level_starts(series((10, 22), (10.5, 8), seed=seed), 0.02) in ((0, 21), (0, 22), (0, 23))
        for seed in range(100)
    ]
    assert sum(found) >= 95
