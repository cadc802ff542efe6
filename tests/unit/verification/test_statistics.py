"""When measuring stops."""

from __future__ import annotations

import pytest

from cudal1_ci.records import Repetition
from cudal1_ci.stats.stopping import StopRule, is_settled
from cudal1_ci.verification import TrialConfig


def launches(*speedups: float) -> list[Repetition]:
    return [
        Repetition(reference_us=(100.0,), candidate_us=(100.0 / speedup,), num_calls=1)
        for speedup in speedups
    ]


def settled(speedups, spread: float = 0.01, **options) -> bool:
    """Whether measuring stops, next to a control that is as it should be."""
    some = launches(*speedups)
    return is_settled(some, launches(*(1.0,) * len(some)), "cpu", spread, StopRule(0.01, **options))


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((), False),
        ((2.0,), False),
        ((2.0, 2.02), True),  # a large effect
        ((1.1, 1.11), False),
        ((1.0, 1.3, 1.1, 1.6, 1.2), False),  # wide
        ((1.0, 1.3, 1.1, 1.6, 1.2) + (1.2,) * 7, True),  # the last look
        ((0.5, 0.51), True),  # hopeless
        ((0.5, 2.5, 0.4), True),  # not surely slow, and no gain is within reach
        ((1.0, 1.004, 0.998, 1.001), True),  # plainly no gain
        ((1.0, 1.03, 0.99, 1.02, 1.01), True),  # a gain is possible, and not likely
        ((1.03, 1.07, 1.02, 1.06, 1.04), False),  # one is likely, and not proven
    ],
)
def test_measuring_stops_when_more_would_change_nothing(speedups, expected):
    assert settled(speedups) is expected


def test_where_repetitions_spread_more_a_large_effect_takes_more_of_them():
    assert not settled((1.5, 1.52), spread=0.05)
    assert settled((1.5, 1.52), spread=0.01)


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((1.0, 1.001, 0.999, 1.001, 1.0), True),  # tight around nothing
        ((0.9, 0.905, 0.9, 0.9, 0.905), True),  # a slowdown, as tight
        ((0.98,), False),
        ((1.0, 1.04, 0.97, 1.05, 0.99), False),  # no gain, and a slowdown is not excluded
        ((0.93, 0.99, 0.9, 0.96, 0.92), False),  # slower, not known by how much
        ((0.93, 0.99, 0.9, 0.96, 0.92) + (0.94,) * 7, True),  # the last look
        ((0.5, 0.51), True),  # twice as slow, known well enough
    ],
)
def test_a_slowdown_is_measured_as_well_as_a_gain_where_a_difference_is_looked_for(
    speedups, expected
):
    assert settled(speedups, 0.005, settles="difference") is expected


def test_another_setting_or_another_protocol_makes_another_policy(monkeypatch):
    usual = TrialConfig().policy
    assert usual == TrialConfig().policy
    assert usual != TrialConfig(num_rounds=13).policy
    monkeypatch.setattr("cudal1_ci.verification.config.PROTOCOL", -1)
    assert usual != TrialConfig().policy
