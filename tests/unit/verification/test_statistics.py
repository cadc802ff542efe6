"""When measuring stops."""

from __future__ import annotations

import pytest

from cudal1_ci.records import Repetition
from cudal1_ci.stats.stopping import is_settled
from cudal1_ci.verification import TrialConfig


def launches(*speedups: float) -> list[Repetition]:
    return [
        Repetition(reference_us=(100.0,), candidate_us=(100.0 / speedup,), num_calls=1)
        for speedup in speedups
    ]


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((), False),
        ((2.0,), False),
        ((2.0,) * 4, False),  # not a look
        ((2.0,) * 5, True),  # tight
        ((1.0, 1.3, 1.1, 1.6, 1.2), False),  # wide
        ((1.0, 1.3, 1.1, 1.6, 1.2) + (1.2,) * 7, True),  # the last look
        ((0.5, 0.51, 0.5), True),  # hopeless
        ((0.5, 2.5, 0.4), False),  # slow on average, but not surely
        ((0.5, 2.5, 0.4) + (0.7,) * 9, True),  # the last look ends it all the same
        ((1.0, 1.004, 0.998, 1.001, 1.0), True),  # plainly no gain
        ((1.0, 1.03, 0.99, 1.02, 1.01), True),  # a gain is possible, and not likely
        ((1.03, 1.07, 1.02, 1.06, 1.04), False),  # one is likely, and not proven
    ],
)
def test_measuring_stops_when_more_would_change_nothing(speedups, expected):
    assert is_settled(launches(*speedups), half_width=0.01, kind="cpu") is expected


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((1.0, 1.004, 0.998, 1.001, 1.0), True),  # tight around nothing
        ((0.9, 0.905, 0.9, 0.9, 0.905), True),  # a slowdown, as tight
        ((0.5, 0.51, 0.5), False),  # no look: a control of three says nothing
        ((1.0, 1.04, 0.97, 1.05, 0.99), False),  # no gain, and a slowdown is not excluded
        ((0.93, 0.99, 0.9, 0.96, 0.92), False),  # slower, not known by how much
        ((0.93, 0.99, 0.9, 0.96, 0.92) + (0.94,) * 7, True),  # the last look
        ((0.5, 0.54, 0.52, 0.5, 0.53), True),  # twice as slow, known well enough
    ],
)
def test_a_slowdown_is_measured_as_well_as_a_gain_where_a_difference_is_looked_for(
    speedups, expected
):
    some = launches(*speedups)
    assert is_settled(some, half_width=0.025, kind="cpu", settles="difference") is expected


def test_another_setting_or_another_protocol_makes_another_policy(monkeypatch):
    usual = TrialConfig().policy
    assert usual == TrialConfig().policy
    assert usual != TrialConfig(num_rounds=13).policy
    monkeypatch.setattr("cudal1_ci.verification.config.PROTOCOL", -1)
    assert usual != TrialConfig().policy
