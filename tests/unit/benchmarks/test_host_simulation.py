"""One driver for all GPUs of a host: what is known of such queues comes out."""

from __future__ import annotations

import pytest


@pytest.fixture
def host(benchmark_module, monkeypatch):
    found = benchmark_module("host_simulation")
    monkeypatch.setattr(found, "NUM_TRIALS", 600)
    monkeypatch.setattr(found, "STEP_S", 0.1)
    return found


def test_alone_nothing_waits_and_many_get_what_the_driver_gives(host):
    assert host.trial_s(1, 0.8, 2.0) == pytest.approx(2.0, rel=0.06)
    assert host.trial_s(16, 0.8, 2.0) == pytest.approx(16 * 0.8, rel=0.06), "it never rests"
    beside = host.trial_s(2, 0.8, 2.0)
    assert 2.05 < beside < 2.8, "some of the visits of the other one are waited for"


def test_what_is_fitted_is_what_was_simulated(host):
    measured = {number: host.trial_s(number, 0.6, 2.5, seed=1) for number in (1, 2, 4)}
    assert host.fitted_driver_s(measured) == pytest.approx(0.6, abs=0.11)


def test_rows_say_what_was_measured_and_how_much_more_is_done(host):
    found = host.simulated({1: 2.5, 2: 2.6, 4: 3.3})
    assert [row["measured_trial_s"] for row in found["rows"]] == [2.5, 2.6, 3.3, None]
    times = [row["times"] for row in found["rows"]]
    assert times[0] == pytest.approx(1, rel=0.06) and times == sorted(times)
    assert found["most_per_hour"] == pytest.approx(3600 / found["driver_s"], rel=0.02)
