"""Launches that end once every round says the same."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from cudal1_ci.records import Device
from cudal1_ci.sandboxed.timing.batch_length import ClockConfig
from cudal1_ci.sandboxed.timing.round_times import error, is_plain, is_steady
from cudal1_ci.sandboxed.timing.rounds import EARLY_ROUNDS
from cudal1_ci.verification import repetitions
from cudal1_ci.verification.config import TrialConfig
from cudal1_ci.verification.device_hold import Seat

COST_US = 100.0
REFERENCE_US = [1000.0, 1100.0, 900.0]


def lanes_of(candidate, control=None) -> dict[str, SimpleNamespace]:
    """With these speedups in their rounds."""

    def lane(ratios):
        pairs = zip(REFERENCE_US, ratios, strict=False)
        return SimpleNamespace(spans_us=[COST_US + us / ratio for us, ratio in pairs])

    lanes = {"reference": lane([1.0] * len(candidate)), "candidate": lane(candidate)}
    return lanes if control is None else lanes | {"control": lane(control[: len(candidate)])}


CONFIG = ClockConfig(batch_us=1.0, max_calls=1, num_rounds=6, repetition_s=1.0, memory_bytes=1)


def ends(candidate, control=(1.0, 1.1, 0.9), fewest=3, effect=0.22) -> bool:
    """Whether a launch with these speedups in its rounds does."""
    config = replace(CONFIG, fewest_rounds=fewest, plain_effect=effect)
    return is_plain(lanes_of(candidate, control), COST_US, config)


def steady(candidate, control, most) -> bool:
    """Whether such a launch needs no more of them."""
    return is_steady(lanes_of(candidate, control), COST_US, replace(CONFIG, most_error=most))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ((1.3, 1.4, 2.0), True),
        ((0.7, 0.5, 0.1), True),
        ((1.3, 1.2, 2.0), False),  # not all that far
        ((0.5, 0.85, 0.5), False),
        ((2.0, 0.5, 2.0), False),  # not the same way
        ((2.0, 2.0), False),  # too few
    ],
)
def test_every_round_has_to_say_so(candidate, expected):
    assert ends(candidate) is expected
    assert ends(candidate, control=None) is expected  # one that has processes of its own


@pytest.mark.parametrize(
    ("candidate", "control", "most", "expected"),
    [
        ((2.0, 2.01, 1.99), (1.0, 1.0, 1.0), 0.03, True),
        ((2.0, 2.5, 1.5), (1.0, 1.0, 1.0), 0.03, False),
        ((2.0, 2.0, 2.0), (1.0, 1.3, 0.7), 0.03, False),
        ((2.0, 2.0, 4.0), (1.0, 1.0, 1.0), 0.03, True),  # one that was disturbed
        ((2.0, 2.5, 1.5), (1.0, 1.3, 0.7), None, True),
    ],
)
def test_rounds_that_differ_are_not_enough(candidate, control, most, expected):
    assert steady(candidate, control, most) is expected
    assert steady(control, candidate, most) is expected


def test_as_many_more_rounds_narrow_the_error_by_the_root():
    logs = [math.log(one) for one in (0.8, 0.9, 1.0, 1.1, 1.3)]
    assert error(logs * 4) == pytest.approx(error(logs) / 2)
    assert error(logs) == pytest.approx(1.858 * math.log(1.1 / 1.0) / math.sqrt(5), rel=0.11)


def test_a_control_that_strays_as_far_says_that_nothing_is_plain():
    assert not ends((2.0, 2.0, 2.0), control=(1.0, 1.3, 1.0))
    assert not ends((2.0, 2.0, 2.0), control=(1.0, 1.0, 0.7))


def test_nobody_asks_for_it_unless_told():
    assert not ends((2.0, 2.0, 2.0), fewest=None)
    assert not ends((2.0, 2.0, 2.0), effect=math.inf)


def test_a_launch_without_a_candidate_never_does():
    """The control's own, where memory is short."""
    lane = SimpleNamespace(spans_us=[1.0] * 3)
    config = replace(CONFIG, fewest_rounds=3, plain_effect=0.2)
    assert not is_plain({"reference": lane, "control": lane}, 0.0, config)


def no_answer(request, timeout_s):
    raise AssertionError(request)


@pytest.mark.parametrize(
    ("kind", "num_launches", "expected"),
    [("cuda", 1, 3), ("cuda", None, None), ("cuda", 3, None), ("cpu", 1, None)],
)
def test_it_is_for_the_only_launch_on_a_gpu(kind, num_launches, expected):
    device = Device(kind=kind, name="none", num_threads=1)
    seat = Seat(no_answer, no_answer, device, "none")
    config = msgspec.structs.replace(TrialConfig(), num_launches=num_launches)
    clock = repetitions.clock_of(seat, config)
    assert clock.fewest_rounds == expected
    assert clock.most_error == (None if expected is None else repetitions.MOST_ERROR)


def test_what_is_looked_at_after_one_of_the_first_rounds_is_looked_at():
    assert EARLY_ROUNDS <= repetitions.FEWEST_ROUNDS
