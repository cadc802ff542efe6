"""Series and views of lines whose story is known."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.trend.page import render_summary
from cudal1_ci.trend.series import Commit, all_series, changed, commits_of
from cudal1_ci.trend.view import view
from tests.unit.trend.conftest import history_of, view_of
from tests.unit.trend.samples import (
    H200,
    NEWER,
    a_comparison,
    a_line,
    a_report,
    a_target,
    an_entry,
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
    return series


# --- steps and breaks --------------------------------------------------------------------------


def test_the_story_of_the_line_is_told(line):
    told = {
        (seen.series.target.partition(":")[2], seen.series.machine.name, seen.step.place): seen
        for seen in line.steps
    }
    for device in ("NVIDIA H200", "NVIDIA L40S"):
        assert told["Attention", device, 8].step.ratio == pytest.approx(1.14, abs=0.02)
        assert told["Attention", device, 8].undone_at == 16
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
        for series in target.series:
            (one,) = series.breaks
            assert one.place == 12
            assert one.what == "driver 570.86.15 → 580.12.01, torch 2.12.1 → 2.13.0"
            assert 12 not in {step.place for step in series.steps}


def test_what_changed_of_a_machine_is_named():
    from cudal1_ci.trend.report_lines import machine_of

    before, after = machine_of(H200), machine_of(NEWER_H200)
    assert changed(before, before) == ""
    gone = msgspec.structs.replace(after, driver=None)
    assert changed(after, gone) == "driver 580.12.01 → none"


def test_a_commit_that_is_measured_again_has_its_last_time():
    again = compared(1, 10.0, 10.4, generated_at=None)
    series = only_series(compared(0, 10, 10), compared(1, 10, 10.1), again)
    assert [point.time_us for point in series.points] == [10.0, 10.4]


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


# --- the summary -------------------------------------------------------------------------------


def test_the_summary_says_what_stands(line):
    text = render_summary(line)
    assert text.startswith(
        "30 commits; 6 targets; NVIDIA H200 and NVIDIA L40S; 2 steps to slower that nothing has"
    )
    assert "Steps (8)" in text
    assert "undone at 0010c0ffee" in text


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
