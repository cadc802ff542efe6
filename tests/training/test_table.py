"""Rows of the table on samples with known answers."""

from __future__ import annotations

import itertools
import random
import statistics

import numpy as np
import pytest

from model_training.table import Sample, best_of, interval, mean_of, table


def passed(task: str, *speedups: float) -> list[Sample]:
    return [Sample(task=task, status="passed", speedup=one) for one in speedups]


def failed(task: str, *statuses: str) -> list[Sample]:
    return [Sample(task=task, status=one) for one in statuses]


SAMPLES = [
    *passed("a", 2.0, 1.0),
    *failed("a", "no_code", "reward_hack"),
    *passed("b", 0.5, 1.02),
    *failed("b", "runtime_error", "incorrect_values"),
    *failed("c", "no_code", "no_code", "compile_error", "timeout"),
]


def test_a_table_of_three_tasks():
    found = table(SAMPLES, k=4)
    assert (found.num_tasks, found.num_samples) == (3, 12)
    assert found.format.value == pytest.approx(9 / 12)
    assert found.executable.value == pytest.approx((3 + 3 + 0) / 12)
    assert found.correct.value == pytest.approx(4 / 12)
    assert found.pass_at_k.value == pytest.approx(2 / 3)
    assert found.faster_at_k.value == pytest.approx(1 / 3)
    assert found.mean.value == pytest.approx((2 + 1.02 + 1) / 3)
    assert found.geometric_mean.value == pytest.approx((2 * 1.02) ** (1 / 3))
    assert (found.median, found.max) == (1.02, 2.0)
    assert (found.success, found.above, found.hacks) == (2, 2, 1)
    assert found.statuses["passed"] == 4


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_best_of_k_is_the_mean_over_all_draws(k):
    rng = random.Random(k)
    samples = passed("a", *(rng.uniform(0.5, 3) for _ in range(4))) + failed("a", "no_code")
    worths = [max(1.0, one.speedup or 1.0) for one in samples]
    exact = statistics.fmean(max(draw) for draw in itertools.combinations(worths, k))
    assert best_of(k, samples) == pytest.approx(exact)


@pytest.mark.parametrize(("k", "expected"), [(1, 2 / 4), (2, 1 - 1 / 6), (3, 1.0)])
def test_pass_at_k_is_the_chance_of_one_success(k, expected):
    samples = passed("a", 1.0, 1.0) + failed("a", "timeout", "timeout")
    assert table(samples, k=k).pass_at_k.value == pytest.approx(expected)


def test_an_interval_covers_what_it_says():
    """Of the mean of 40 tasks, in 200 worlds."""
    world = random.Random(0)
    covered = 0
    for number in range(200):
        values = np.array([world.gauss(1.5, 0.4) for _ in range(40)])
        found = interval(values, mean_of, np.random.default_rng(number))
        assert found.low <= found.value <= found.high
        covered += found.low <= 1.5 <= found.high
    assert 0.90 <= covered / 200 <= 0.98


def test_the_same_samples_are_the_same_table():
    assert table(SAMPLES, k=2) == table(SAMPLES, k=2)


@pytest.mark.parametrize("samples", [[], SAMPLES[:3]])
def test_too_few_samples_are_refused(samples):
    with pytest.raises(ValueError, match="at least 4 samples of each task"):
        table(samples, k=4)


def test_a_failure_has_no_speedup_and_a_success_has_one():
    with pytest.raises(ValueError, match="of what passed"):
        Sample(task="a", status="timeout", speedup=2.0)
    with pytest.raises(ValueError, match="of what passed"):
        Sample(task="a", status="passed")
