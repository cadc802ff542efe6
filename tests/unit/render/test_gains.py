"""What proposals save, in which order they come, and under which names they stay."""

from __future__ import annotations

import math

import msgspec
import pytest

from cudal1_ci.records import Call, TrainingStep, Workload
from cudal1_ci.render.gains import gains_of, id_of
from cudal1_ci.render.saving import Saved, saved_by
from tests.fakes import a_problem
from tests.reports import PATCH, a_report, a_target, proposed

STEP = TrainingStep(
    device="H200", num_steps=9, calls_per_step=4, share=0.3, share_low=0.2, share_high=0.4
)


def an_entry(name: str = "f", step: TrainingStep | None = None, low: float = 3.0, **workload):
    """`proposed` takes 300 us a call and is at least `low` times as fast."""
    entry = proposed(target=a_target(name))
    evaluation = entry.evaluations[0]
    measured = msgspec.structs.replace(evaluation.measurements[0], speedup_low=low)
    called = Workload(name="base", provenance="traced", call=Call(), **workload)
    return msgspec.structs.replace(
        entry,
        evaluations=(msgspec.structs.replace(evaluation, measurements=(measured,)),),
        workloads=(called,),
        step=step,
    )


@pytest.mark.parametrize(
    ("entry", "unit", "amount", "text"),
    [
        (an_entry(step=STEP, calls_per_step=4), "step", 0.2, "20.0 % of a training step"),
        (an_entry(share=0.06), "traced", 0.04, "4.0 % of the traced time"),
        (an_entry(share=0.06, calls_per_step=4), "traced", 0.04, "4.0 % of the traced time"),
        (an_entry(calls_per_step=4), "step_us", 800.0, "800 us per training step"),
        (an_entry(num_calls=100), "traced_us", 20_000.0, "20.0 ms of what was traced"),
        (an_entry(), "call_us", 200.0, "200 us per call"),
    ],
)
def test_what_is_saved_is_said_from_the_best_source(entry, unit, amount, text):
    saved = saved_by(entry, entry.evaluations[0])
    assert saved == Saved(unit=unit, amount=pytest.approx(amount))
    assert saved.text == text


def test_shares_of_several_roots_do_not_add_up():
    entry = an_entry(share=0.9, root="a.py:Small")
    (measured,) = entry.evaluations[0].measurements
    other = msgspec.structs.replace(measured, workload="other")
    evaluation = msgspec.structs.replace(entry.evaluations[0], measurements=(measured, other))
    called = msgspec.structs.replace(entry.workloads[0], name="other", share=0.6, root="a.py:Large")
    entry = msgspec.structs.replace(entry, workloads=(*entry.workloads, called))
    saved = saved_by(entry, evaluation)
    assert saved is not None
    assert saved.text == "60.0 % of the traced time of Small"
    problem = msgspec.structs.replace(a_problem(), workloads=entry.workloads)
    assert problem.share == 0.9


def test_shares_come_before_times_and_in_each_what_saves_more():
    entries = {
        "step": an_entry("step", step=STEP, calls_per_step=4),
        "traced": an_entry("traced", share=0.9),
        "little": an_entry("little", share=0.001),
        "per step": an_entry("per step", calls_per_step=1e9),
        "per call": an_entry("per call"),
        "slower": an_entry("slower", low=1.5),
    }
    gains = gains_of(a_report(*reversed(entries.values())))
    assert [gain.entry.target.qualname for gain in gains] == [
        "traced",
        "step",
        "little",
        "per step",
        "per call",
        "slower",
    ]


def test_of_several_devices_the_one_that_gains_least_counts():
    entry = an_entry(share=0.5)
    (measured,) = entry.evaluations[0].measurements
    little = msgspec.structs.replace(measured, speedup_low=1.25, speedup=3.1)
    both = msgspec.structs.replace(entry.evaluations[0], measurements=(measured, little))
    assert saved_by(entry, both).amount == pytest.approx(0.1)


@pytest.mark.parametrize("low", [0.9, 1.0])
def test_what_is_not_faster_beyond_doubt_is_not_there(low):
    assert gains_of(a_report(an_entry(low=low))) == []


@pytest.mark.parametrize(
    "workload",
    [
        {"num_calls": 10**400},
        {"calls_per_step": 1e308},
        {"share": 0.0},
        {"calls_per_step": 0.0},
    ],
)
def test_numbers_that_no_clock_has_seen_are_no_gain(workload):
    for gain in gains_of(a_report(an_entry(**workload))):
        assert math.isfinite(gain.saved.amount)


def test_a_proposal_keeps_its_id_where_its_lines_move_and_gets_another_with_other_lines():
    def named(patch: str | None, **target) -> str:
        entry = proposed(patch, a_target(**target))
        return id_of(entry, entry.evaluations[0])

    moved = PATCH.replace("@@ -2,8 +2,7 @@", "@@ -32,8 +32,7 @@")
    around = PATCH.replace(" def other(x):", " def another(x):")
    assert named(PATCH) == named(moved, line=34) == named(around)
    others = {
        named(PATCH, qualname="g"),
        named(PATCH.replace("weight.unsqueeze(1) * x", "x * weight.unsqueeze(1)")),
        named(PATCH.replace("return scale @ x", "return scale @ y")),
        named(None),
    }
    assert len(others) == 4
    assert named(PATCH) not in others
