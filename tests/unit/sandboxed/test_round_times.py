"""What is left of a batch's span once the exchange around it is taken off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ci.sandboxed.timing import rounds as module
from cudal1_ci.sandboxed.timing.round_times import times
from cudal1_ci.sandboxed.timing.rounds import Rounds

STEADY = [350.0, 351.0, 352.0, 353.0]
DELAYED = [350.0, 420.0, 470.0, 520.0]
"""Exchanges on a quiet machine, and where other work delays some."""
COLD = [20.0] * 4


def measured(exchanges_us, spans_us):
    """Return microseconds a call of eight by the candidate, whose first calls are as cold."""
    lanes = {
        "reference": SimpleNamespace(spans_us=(3500.0,), colds_us=COLD),
        "candidate": SimpleNamespace(spans_us=spans_us, colds_us=[]),
    }
    rounds = SimpleNamespace(lanes=lanes, exchanges_us=exchanges_us)
    Rounds.measure_exchange(rounds)
    return times(lanes, rounds.cost_us, 8, rounds.unknown_us)["candidate"]


def test_the_exchange_and_what_first_calls_take_more_are_no_part_of_a_call():
    assert measured(STEADY, (416.0, 420.0)) == pytest.approx((5.65625, 6.15625))


def test_no_batch_counts_as_less_than_what_exchanges_differ_by():
    """Else a call of 6 us, in a batch that happened to be quick, would take 1 us."""
    first_quartile, median = 402.5, 445.0
    (found,) = measured(DELAYED, (416.0,))
    assert found == pytest.approx((median - first_quartile) / 8)
    (long,) = measured(DELAYED, (4416.0,))
    assert long == pytest.approx((4416.0 - first_quartile - 20.0) / 8)


@pytest.mark.parametrize(("before_us", "least_us"), [(600.0, 42.5), (380.0, 65.0)])
def test_the_same_holds_for_long_batches_whose_exchange_is_measured_afterwards(
    monkeypatch, before_us, least_us
):
    """The least cost counts, of before and after; what it may be off counts from there."""
    monkeypatch.setattr(module, "play", lambda *_, **__: None)
    monkeypatch.setattr(module, "measured_exchanges", lambda *_: DELAYED)
    lane = SimpleNamespace(spans_us=(416.0,), colds_us=[])
    rounds = SimpleNamespace(exchanges_us=[], cost_us=before_us, reference=lane, new=lambda: None)
    rounds.case = rounds.rng = rounds.limits = None
    Rounds.measure_exchange(rounds)
    (found,) = times({"candidate": lane}, rounds.cost_us, 1, rounds.unknown_us)["candidate"]
    assert found == pytest.approx(least_us)
