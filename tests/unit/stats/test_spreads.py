"""What repetitions are expected to spread by."""

from __future__ import annotations

import random

import pytest

from cudal1_ci.stats.spreads import LEAST, USUAL, learned


def test_without_a_past_it_is_the_usual_spread_of_the_length():
    assert learned("cuda", 10.0, []) == USUAL["cuda"][0]
    assert learned("cuda", 120.0, []) == USUAL["cuda"][1]
    assert learned("cpu", 50_000.0, []) == USUAL["cpu"][3]


def test_a_machine_that_became_quiet_is_soon_known_as_such():
    rng = random.Random(1)
    loud = [rng.gauss(0, 0.2) for _ in range(200)]
    quiet = [rng.gauss(0, 0.01) for _ in range(64)]
    assert learned("cpu", 100.0, loud) > 0.15
    assert learned("cpu", 100.0, loud + quiet) < 0.025


def test_a_few_disturbed_repetitions_move_it_little():
    rng = random.Random(2)
    past = [rng.gauss(0, 0.01) for _ in range(60)]
    assert learned("cuda", 10.0, [*past, 0.7, -0.5]) < 1.2 * learned("cuda", 10.0, past)


def test_it_is_never_less_than_the_clock_can_say():
    assert learned("cuda", 5000.0, [0.0] * 64) == pytest.approx(LEAST)
