"""Which launches count, and when there are enough, with a judge that says what it is told."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest

from cudal1_ci.records import Finding, Measurement, Repetition, Verdict
from cudal1_ci.sandboxed.wire import verdicts
from cudal1_ci.sandboxed.wire.verifier import Repeated, Times
from cudal1_ci.stats.spreads import USUAL
from cudal1_ci.stats.stopping import FEWEST
from cudal1_ci.verification import TrialConfig, device_hold, repetitions
from cudal1_ci.verification.device_hold import Seat
from cudal1_ci.verification.repetitions import is_hopeless, measure
from cudal1_ci.verification.spread_memory import SpreadMemory
from tests.conftest import QUICK
from tests.fakes import CPU, a_workload


def disturbed(rule: str) -> Verdict:
    return Verdict(status="inconclusive", findings=(Finding(rule=rule, message="why"),))


@pytest.mark.parametrize(
    ("rules", "missing", "expected"),
    [
        (["reference.died"], (), False),
        (["reference.died", "reference.timeout"], (), False),
        (["reference.died", "reference.timeout", "reference.died"], (), True),
        (["reference.died"], ("pid_namespace",), True),
        (["timing.disturbed"], ("pid_namespace",), False),
        (["timing.disturbed"] * 2 + ["reference.died"], (), False),
        (["reference.died"] * 2 + ["timing.disturbed"], (), False),
        (["timing.disturbed"] * 6, (), True),
    ],
)
def test_how_often_a_launch_that_says_nothing_is_made_again(rules, missing, expected):
    here = msgspec.structs.replace(CPU, sandbox_missing=missing)
    assert is_hopeless([disturbed(rule) for rule in rules], here) is expected


CONFIG = msgspec.structs.replace(QUICK, measure_s=0.2)


def no_ask(request, timeout_s):
    raise AssertionError(f"on a CPU nothing is asked beside others, but {request.op} is")


def measured(*replies: Repeated):
    """What is made of a judge's answers."""
    answers = iter(replies)
    return measure(Seat(lambda *_: next(answers), no_ask, CPU, "cpu"), CONFIG, a_workload())


def counted(candidate_us: float = 50.0, control_us: float = 100.0) -> Repeated:
    times = Times(
        reference_us=(100.0,) * 3,
        candidate_us=(candidate_us,) * 3,
        control_us=(control_us,) * 3,
        num_calls=1,
        phases_s={},
    )
    return Repeated(times=times)


COUNTED = counted()
FINDING = verdicts.Finding(rule="timing.reconciliation", message="why")
SUSPICIOUS = replace(COUNTED, suspicion=verdicts.Verdict(status="reward_hack", findings=(FINDING,)))


def test_a_clock_that_contradicts_the_judges_once_is_no_accusation_and_no_reason_to_measure_again():
    measurement = measured(SUSPICIOUS, *[COUNTED] * 4)
    assert len(measurement.repetitions) == len(measurement.control) == 3


def test_a_clock_that_contradicts_the_judges_again_and_again_is_a_hack():
    verdict = measured(SUSPICIOUS, COUNTED, SUSPICIOUS, SUSPICIOUS)
    assert (verdict.status, verdict.findings[0].rule) == ("reward_hack", "timing.reconciliation")


def test_a_clock_that_contradicts_the_judges_in_most_launches_is_asked_once_more(monkeypatch):
    times = iter(range(0, 10_000, 100))
    monkeypatch.setattr(repetitions.time, "monotonic", lambda: next(times))  # all is spent at once
    verdict = measured(SUSPICIOUS, COUNTED, SUSPICIOUS, SUSPICIOUS)
    assert (verdict.status, verdict.findings[0].rule) == ("reward_hack", "timing.reconciliation")


def test_waiting_for_the_device_is_no_time_of_measuring(monkeypatch):
    @contextmanager
    def held_by_others(lock):
        time.sleep(CONFIG.measure_s * 2)
        yield

    monkeypatch.setattr(device_hold, "exclusive", held_by_others)
    uneven = [counted(candidate_us=one) for one in (100.0, 70.0, 80.0, 60.0) * 3]
    assert len(measured(*uneven).repetitions) > FEWEST


def test_measuring_ends_when_its_time_is_spent():
    times = iter(range(1, 100))

    def ask(*_):
        time.sleep(CONFIG.measure_s / 2)
        factor = next(times)  # no interval of these is ever narrow
        return counted(candidate_us=50.0 * factor)

    measurement = measure(Seat(ask, no_ask, CPU, "cpu"), CONFIG, a_workload())
    assert len(measurement.repetitions) == FEWEST


def test_a_fixed_number_of_launches_and_no_process_is_started_for_more():
    clocks = []

    def ask(request, _):
        clocks.append(request.clock)
        return COUNTED

    config = msgspec.structs.replace(CONFIG, num_launches=3)
    measurement = measure(Seat(ask, no_ask, CPU, "cpu"), config, a_workload())
    assert len(measurement.repetitions) == len(clocks) == 3
    ahead = [repetitions.num_ahead(config, "cuda", number) for number in range(3)]
    assert ahead == [3, 2, 1]
    assert [repetitions.num_ahead(CONFIG, kind, 0) for kind in ("cpu", "cuda")] == [1, 2]
    assert measurement.prior_spread is None, "of a fixed number of them"


def with_control(factor: float) -> Repeated:
    """A launch in which the reference seems to be that much slower than itself."""
    return counted(control_us=factor * 100.0)


def test_a_control_that_strays_says_that_nothing_can_be_measured():
    verdict = measured(*map(with_control, (1, 2, 0.5, 3, 1) * 2 + (2, 0.5)))
    assert (verdict.status, verdict.findings[0].rule) == ("inconclusive", "timing.noisy")


def test_one_launch_in_which_the_control_strays_is_made_up_for_by_others():
    measurement = measured(*map(with_control, (1, 2) + (1,) * 10))
    assert FEWEST < len(measurement.repetitions) == len(measurement.control)


def test_what_controls_showed_is_expected_of_the_next_measurement(tmp_path):
    spreads = SpreadMemory(tmp_path / "spreads.json")

    def spread_after(control_us: float) -> float:
        answers = iter([counted(control_us=control_us)] * 12)
        seat = Seat(lambda *_: next(answers), no_ask, CPU, "cpu", spreads=spreads)
        return measure(seat, CONFIG, a_workload()).prior_spread

    assert spread_after(101.0) == USUAL["cpu"][1]
    assert spread_after(101.0) < USUAL["cpu"][1]


def a_launch_of(ratio: float) -> Repetition:
    return Repetition(reference_us=(100.0 * ratio,) * 6, candidate_us=(100.0,) * 6, num_calls=1)


@pytest.mark.parametrize(
    ("kind", "ratios", "expected"),
    [
        ("cuda", [], 6),
        ("cuda", [3.0], 3),
        ("cuda", [3.0, 2.0], 3),
        ("cuda", [0.5], 3),
        ("cuda", [3.0, 1.2], 6),
        ("cuda", [1.01], 6),
        ("cpu", [3.0], 30),
    ],
)
def test_a_plain_effect_takes_fewer_rounds_in_the_launches_after_it(kind, ratios, expected):
    launches = [a_launch_of(ratio) for ratio in ratios]
    assert repetitions.num_rounds(TrialConfig(), launches, kind) == expected
    assert repetitions.num_rounds(TrialConfig(num_rounds=2), launches, kind) == 2


@pytest.mark.parametrize(
    ("strays", "is_noise"),
    [
        ((1.2, 0.85, 1.1), False),  # their t interval is 0.5 to 2.1
        ((1.2, 1.0, 1.6), True),
        ((1.2, 0.85, 1.1, 1.0, 1.0), False),
        ((1.6, 0.7, 1.4, 0.6, 1.5), True),
    ],
)
def test_a_machine_is_too_busy_when_equal_code_strays_far(strays, is_noise):
    control = tuple(a_launch_of(stray) for stray in strays)
    found = Measurement(workload="w", repetitions=control, control=control, device=CPU)
    assert (repetitions.noise(found) is not None) == is_noise


@pytest.mark.parametrize(
    ("ratio", "stray", "is_noise"),
    [
        (1.3, 1.02, False),
        (1.3, 1.4, True),
        (0.7, 1.45, True),  # a loss is a claim too
        (1.01, 1.2, False),  # nothing is claimed
    ],
)
def test_no_claim_stands_beside_a_control_that_deviates_by_more(ratio, stray, is_noise):
    found = Measurement(
        workload="w",
        repetitions=tuple(a_launch_of(ratio * step) for step in (1.0, 1.001, 0.999, 1.0, 1.0)),
        control=tuple(a_launch_of(one) for one in (1.0, 1.0, stray)),
        device=CPU,
    )
    said = repetitions.noise(found)
    assert (said is not None) == is_noise
    assert said is None or "more than" in said.findings[0].message
