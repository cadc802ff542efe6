"""Series, chains and views of lines whose story is known."""

from __future__ import annotations

import math

import msgspec
import pytest

from cudal1_ci.render.shape import ComparisonDocument
from cudal1_ci.trend.chain import Compared, chain_of
from cudal1_ci.trend.commits import Commit, commits_of
from cudal1_ci.trend.proposals import proposals_of, settled
from cudal1_ci.trend.record import Fate, History, Proposal
from cudal1_ci.trend.series import all_series, changed
from cudal1_ci.trend.text import render_summary
from cudal1_ci.trend.view import view
from tests.unit.trend.conftest import history_of, view_of
from tests.unit.trend.samples import (
    AFTER,
    BEFORE,
    H200,
    NEWER,
    PATCH,
    a_comparison,
    a_line,
    a_report,
    a_target,
    an_entry,
    an_evaluation,
    sha,
)

NEWER_H200 = msgspec.structs.replace(H200, **NEWER)


def compared(number: int, base_us: float, head_us: float, device=H200, **fields):
    entry = an_entry(a_target("f"), comparison=a_comparison(base_us, head_us, device))
    return a_report(number, entry, devices=(device,), **fields)


def nothing(number: int, **fields):
    """A commit that touched no target."""
    return a_report(number, devices=(), **fields)


def only_series(*documents, known=()):
    history = history_of(*documents)
    commits = commits_of(history, known)
    (series,) = all_series(history, commits)
    return series, chain_of(series, Compared(history, commits))


# --- steps and breaks --------------------------------------------------------------------------


def test_the_story_of_the_line_is_told(line):
    told = {
        (seen.series.target.partition(":")[2], seen.series.machine.name, seen.step.place): seen
        for seen in line.steps
    }
    for device in ("NVIDIA H200", "NVIDIA L40S"):
        assert told["Attention", device, 8].step.ratio == pytest.approx(1.14, abs=0.02)
        assert told["Attention", device, 8].mended_at == 16
        assert told["Attention", device, 16].step.ratio == pytest.approx(1 / 1.14, abs=0.02)
        assert told["Rotary", device, 22].is_standing
        assert told["pool", device, 19].step.ratio == pytest.approx(0.4, abs=0.02)
    assert len(told) == 8
    assert all(seen.step.is_confirmed for seen in line.steps)


def test_the_worst_is_told_first(line):
    assert line.targets[0].qualname == "Rotary"
    assert [seen.is_standing for seen in line.steps[:3]] == [True, True, False]
    assert line.targets[-1].qualname == "pool"


def test_a_new_driver_is_a_break_and_no_step(line):
    for target in line.targets:
        for drawn in target.drawn:
            (one,) = drawn.series.breaks
            assert one.place == 12
            assert one.what == "driver 570.86.15 → 580.12.01, torch 2.12.1 → 2.13.0"
            assert 12 not in {step.place for step in drawn.series.steps}


def test_what_changed_of_a_machine_is_named():
    from cudal1_ci.trend.report_lines import machine_of

    before, after = machine_of(H200), machine_of(NEWER_H200)
    assert changed(before, before) == ""
    gone = msgspec.structs.replace(after, driver=None)
    assert changed(after, gone) == "driver 580.12.01 → none"


def test_a_commit_that_is_measured_again_has_its_last_time():
    again = compared(1, 10.0, 10.4, generated_at=None)
    series, _ = only_series(compared(0, 10, 10), compared(1, 10, 10.1), again)
    assert [point.time_us for point in series.points] == [10.0, 10.4]


# --- the chain ---------------------------------------------------------------------------------


def test_ratios_multiply_although_the_machine_drifts():
    drifting = [compared(n, 10 * 1.3**n, 10 * 1.3**n * 1.01) for n in range(6)]
    _, chain = only_series(*drifting)
    assert chain.links[-1].product == pytest.approx(1.01**6, rel=1e-4)
    half = math.sqrt(6) * math.log(1.01 / 0.99) / 2
    assert math.log(chain.links[-1].high / chain.links[-1].product) == pytest.approx(half, rel=0.01)
    assert chain.num_gaps == 0


def test_the_chain_goes_on_over_a_new_driver():
    _, chain = only_series(compared(0, 10, 11), compared(1, 8, 8.8, NEWER_H200))
    assert chain.links[-1].product == pytest.approx(1.21, rel=1e-3)
    assert chain.num_gaps == 0


def test_a_commit_that_does_not_touch_the_target_leaves_no_gap():
    _, chain = only_series(compared(0, 10, 10), nothing(1), nothing(2), compared(3, 10, 11))
    assert chain.num_gaps == 0


def test_a_commit_that_was_never_compared_leaves_a_gap():
    _, chain = only_series(compared(0, 10, 10), nothing(1), compared(3, 10, 11))
    assert chain.num_gaps == 1
    known = [Commit(sha=sha(number)) for number in range(5)]
    _, chain = only_series(compared(0, 10, 10), nothing(1), compared(3, 10, 11), known=known)
    assert chain.num_gaps == 1


def test_a_push_of_several_commits_leaves_no_gap():
    whole = compared(3, 10, 11, base_sha=sha(0))
    _, chain = only_series(compared(0, 10, 10), whole)
    assert chain.num_gaps == 0


def test_a_target_that_could_not_be_timed_leaves_a_gap():
    skipped = an_entry(a_target("f"), comparison=ComparisonDocument(verdict="skipped"))
    _, chain = only_series(compared(0, 10, 10), a_report(1, skipped), compared(2, 10, 10))
    assert chain.num_gaps == 1


def test_a_comparison_with_what_was_not_measured_has_a_gap():
    _, chain = only_series(compared(0, 10, 10), compared(3, 10, 11, base_sha="f" * 40))
    assert chain.num_gaps == 1


# --- commits -----------------------------------------------------------------------------------


def test_without_a_checkout_commits_are_in_the_order_of_their_lines():
    commits = commits_of(history_of(nothing(2), nothing(0), nothing(2)))
    assert [commit.sha for commit in commits.all] == [sha(2), sha(0)]


def test_a_checkout_orders_commits_and_leaves_out_those_beside_its_line():
    known = [Commit(sha=sha(number)) for number in range(4)]
    commits = commits_of(history_of(nothing(2), nothing(9), nothing(0)), known)
    assert [commit.sha for commit in commits.all] == [sha(0), sha(2)]
    assert commits.left_out == (sha(9),)
    assert [commits.place(sha(n)) for n in range(4)] == [0, None, 1, None]


# --- proposals ---------------------------------------------------------------------------------


def proven(number: int, device=H200, **fields):
    evaluation = an_evaluation(300.0, 2.5, device, **{"patch": PATCH} | fields)
    entry = an_entry(a_target("pool", "pkg/pooling.py"), evaluations=(evaluation,), best=0)
    return a_report(number, entry, devices=(device,))


def told(history: History):
    return proposals_of(history, commits_of(history))


def test_a_proposal_is_open_until_code_says_otherwise():
    history = history_of(proven(0), nothing(1), proven(2))
    (one,) = told(history)
    assert (one.fate, one.proven_at, one.age_commits, one.age.days) == ("open", 0, 2, 1)
    assert one.saved_us == pytest.approx(300 * (1 - 1 / 2.45))


def test_code_says_what_became_of_a_proposal():
    history = history_of(proven(0), nothing(1))
    events = list(history.of(Proposal))
    assert settled(events, sha(1), lambda path: BEFORE, lambda other: True) == []
    (fate,) = settled(events, sha(1), lambda path: AFTER, lambda other: True)
    assert (fate.fate, fate.commit) == ("accepted", sha(1))
    assert settled([*events, fate], sha(2), lambda path: AFTER, lambda other: True) == []
    (other,) = settled([*events, fate], sha(2), lambda path: BEFORE, lambda other: True)
    assert other.fate == "open"
    assert settled(events, sha(0), lambda path: AFTER, lambda other: True) == []
    assert settled(events, sha(1), lambda path: AFTER, lambda other: False) == []


def test_a_proposal_that_is_proven_again_after_it_was_accepted_is_open_again():
    history = history_of(proven(0), nothing(1))
    fate = Fate(proposal=history.of(Proposal)[0].id, commit=sha(1), fate="accepted")
    history = History(entries=(*history.entries, fate))
    assert [(one.fate, one.settled_at) for one in told(history)] == [("accepted", 1)]
    again = History(entries=(*history.entries, *history_of(proven(2)).entries))
    assert [(one.fate, one.proven_at) for one in told(again)] == [("open", 2)]


def test_the_last_measurement_on_each_gpu_counts():
    history = history_of(proven(0), proven(1, NEWER_H200))
    (one,) = told(history)
    assert [measured.machine.driver for measured in one.measured] == ["580.12.01"]


def test_of_a_target_the_proposal_that_saves_the_most_is_missed():
    slower = PATCH.replace("unsqueeze(1)", "reshape(-1, 1)")
    shown = view_of(proven(0), proven(1, patch=slower))
    ((best, num_others),) = shown.missed
    assert num_others == 1
    assert best.proposal.target == "pkg/pooling.py:pool"


# --- the summary -------------------------------------------------------------------------------


def test_the_summary_says_what_stands_and_what_is_missed(line):
    text = render_summary(line)
    assert text.startswith(
        "30 commits; 6 targets; NVIDIA H200 and NVIDIA L40S; 2 steps to slower that nothing has"
    )
    assert "Steps (8)" in text
    assert "mended at 0010c0ffee" in text
    assert "RMSNorm  fusion: " in text


def test_names_from_outside_stay_in_their_line():
    entry = an_entry(a_target("f\n::error::x"), comparison=a_comparison(10, 12, H200))
    documents = [
        *(compared(n, 10, 10, repository="a\nb") for n in range(3)),
        *(a_report(n, entry) for n in range(3, 6)),
    ]
    assert "\n::" not in render_summary(view_of(*documents))


def test_a_line_of_one_commit_is_a_view():
    shown = view(history_of(nothing(0)), commits_of(history_of(nothing(0))))
    assert (shown.steps, shown.targets) == ((), ())
    assert "nothing measured" in render_summary(shown)


def test_the_made_up_line_has_two_reports_a_commit():
    assert len(list(a_line(num_commits=4))) == 8
