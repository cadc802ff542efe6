"""What a run says while it goes."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from cudal1_ci.records import ContractCheck
from cudal1_ci.render.parallel_progress import LiveParallelProgress, PlainParallelProgress
from cudal1_ci.render.progress import (
    PlainProgress,
    Progress,
    RichProgress,
    compared_text,
    progress_on,
)
from cudal1_ci.render.wording import interval_text
from cudal1_ci.stats import speedups
from tests.fakes import a_target
from tests.unit.render.samples import sample_report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(progress: Progress, report) -> None:
    """The events of a run that ends in this report."""
    with progress:
        progress.start(len(report.entries))
        for entry in report.entries:
            if entry.skipped and not entry.workloads:
                progress.target_skipped(entry.target, entry.skipped)
                continue
            progress.target_started(entry.target)
            if entry.skipped:
                progress.target_skipped(entry.target, entry.skipped)
            for evaluation in entry.evaluations:
                progress.candidate_started(entry.target, evaluation.candidate)
                progress.candidate_judged(
                    entry.target, evaluation, evaluation.candidate.id in entry.reused
                )
        progress.notice("::set-env::x\n::error::not 100 % sure")
        progress.finish(report)


def test_plain_progress_is_one_line_an_event(report):
    stream = io.StringIO()
    play(PlainProgress(stream), report)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "8 targets to look at"
    assert lines[1] == "[1/8] slowformer/attention.py:Attention"
    assert lines[2] == (
        "  playbook:sdpa_unmasked: wrong values: output 0 differs: 1.31 > 1.2e-05 allowed "
        "(known from an earlier run)"
    )
    assert lines[3].startswith("  playbook:sdpa: passed, 3.09x [")
    assert lines[3].endswith("(long) on AMD EPYC 9B14, 1 thread")
    (raised,) = [line for line in lines if "Vocabulary" in line]
    assert raised.endswith("skipped: runtime_error: the reference raised"), "and no traceback"
    places = [line.split()[0] for line in lines if line.startswith("[")]
    assert places == [f"[{i}/8]" for i in range(1, 9)]
    assert "  skipped: degenerate: the output is the same for all inputs" in lines
    assert lines[-1] == "2 faster versions for 8 targets in 94 s"


@pytest.mark.parametrize("made", [PlainProgress, PlainParallelProgress])
def test_what_cannot_be_run_is_told_in_one_sentence(made):
    stream = io.StringIO()
    made(stream).start(1, 240)
    made(stream).start(3)
    assert stream.getvalue().splitlines() == [
        "1 target to look at; 240 others cannot be run (see `scan --list`)",
        "3 targets to look at",
    ]


@pytest.mark.parametrize("made", [RichProgress, LiveParallelProgress])
def test_a_terminal_is_told_too_what_cannot_be_run(made):
    stream = Terminal()
    with made(Console(file=stream, width=100)) as progress:
        progress.start(2, 1)
    assert "2 targets to look at; 1 other cannot be run (see `scan --list`)" in re.sub(
        r"\x1b\[[\d;]*m", "", stream.getvalue()
    )


def test_actions_fold_each_target_and_obey_no_line_of_user_code(report):
    stream = io.StringIO()
    play(PlainProgress(stream, has_groups=True), report)
    lines = stream.getvalue().splitlines()
    opened = [i for i, line in enumerate(lines) if line.startswith("::group::")]
    closed = [i for i, line in enumerate(lines) if line == "::endgroup::"]
    assert len(opened) == len(closed) == 5
    assert all(a < b for a, b in zip(opened, closed, strict=True))
    assert all(b < a for b, a in zip(closed, opened[1:], strict=False))
    commands = {line.split("::")[1] for line in lines if line.startswith("::")}
    assert commands == {"group", "endgroup", "warning"}
    assert "::warning::::set-env::x ::error::not 100 %25 sure" in lines


@pytest.mark.parametrize("has_groups", [True, False])
def test_what_a_file_is_called_is_no_line_of_its_own(has_groups):
    stream = io.StringIO()
    target = a_target(path="a\n::set-output name=verdict::same\n.py")
    with PlainProgress(stream, has_groups=has_groups) as progress:
        progress.start(2)
        progress.target_started(target)
        progress.target_skipped(a_target(path="b\n::error::no.py"), "no workload")
    lines = stream.getvalue().splitlines()
    assert not [line for line in lines if line.startswith(("::set-output", "::error"))]


@pytest.mark.parametrize("has_groups", [False, True])
def test_a_contract_that_was_tried_names_its_target_outside_of_any_group(has_groups):
    lines = (
        ContractCheck(aspect="one row", result="held"),
        ContractCheck(aspect="dtype float64", result="broken"),
    )
    first, second = a_target("a.py", "A"), a_target("b.py", "B")
    stream, several = io.StringIO(), io.StringIO()
    progress, parallel = (
        PlainProgress(stream, has_groups=has_groups),
        PlainParallelProgress(several),
    )
    for each in (progress, parallel):
        each.start(2)
        each.target_started(first)
        each.target_started(second)
        each.contract_tried(first, lines)
    said = "a.py:A: contract: 1 held, 1 broken, 0 not tried"
    expected = ["::endgroup::"] if has_groups else []
    assert stream.getvalue().splitlines()[-1 - len(expected) :] == [*expected, f"[1/2] {said}"]
    assert several.getvalue().splitlines()[-1] == f"[0/2] {said}"


@pytest.mark.parametrize("has_groups", [False, True])
def test_a_run_that_returns_to_a_target_names_it_again(report, has_groups):
    stream = io.StringIO()
    evaluation = report.entries[0].evaluations[0]
    first, second = a_target("a.py", "A"), a_target("b.py", "B")
    with PlainProgress(stream, has_groups=has_groups) as progress:
        progress.start(2)
        for target in (first, second):
            progress.target_started(target)
        for target in (first, first, second):
            progress.candidate_judged(target, evaluation, False)
    lines = stream.getvalue().splitlines()
    named = [line.removeprefix("::group::") for line in lines if ".py:" in line]
    assert named == ["[1/2] a.py:A", "[2/2] b.py:B"] * 2


def test_an_open_group_is_closed_when_the_run_breaks(report):
    stream = io.StringIO()
    with pytest.raises(RuntimeError), PlainProgress(stream, has_groups=True) as progress:
        progress.start(1)
        progress.target_started(report.entries[0].target)
        raise RuntimeError
    assert stream.getvalue().endswith("::endgroup::\n")


def test_a_terminal_shows_what_is_tried_and_what_was_found(report):
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=160, color_system=None)
    play(RichProgress(console), report)
    text = stream.getvalue()
    assert "trying slowformer/attention.py:Attention: playbook:sdpa" in text
    assert "Attention by playbook:sdpa: 3.09x [" in text
    assert "2 faster versions of 4 candidates" in text
    assert "8/8" in text
    assert text.rstrip().endswith("2 faster versions for 8 targets in 94 s")


def test_the_cursor_comes_back_when_the_run_breaks(report):
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=80)
    with pytest.raises(KeyboardInterrupt), RichProgress(console) as progress:
        progress.start(1)
        progress.target_started(report.entries[0].target)
        raise KeyboardInterrupt
    text = stream.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_comparison_is_rounded_as_the_report_rounds_it(monkeypatch, report):
    evaluations = [one for entry in report.entries for one in entry.evaluations]
    measurement = next(m for one in evaluations for m in one.measurements)
    bounds = speedups.Interval(estimate=19.81, low=18.87, high=20.72)
    monkeypatch.setattr("cudal1_ci.render.progress.slowdown", lambda _: bounds)
    assert interval_text(bounds.estimate, bounds.low, bounds.high) == "19.8x [18.8, 20.8]"
    assert "19.8x as long as the base [18.8, 20.8] on " in compared_text(measurement)


@pytest.mark.parametrize(
    ("stream", "environment", "quiet", "kind"),
    [
        (Terminal(), {}, False, "RichProgress"),
        (Terminal(), {"TERM": "dumb"}, False, "PlainProgress"),
        (io.StringIO(), {}, False, "PlainProgress"),
        (Terminal(), {"GITHUB_ACTIONS": "true"}, False, "PlainProgress"),
        (Terminal(), {}, True, "SilentProgress"),
    ],
)
def test_progress_suits_its_stream(stream, environment, quiet, kind):
    assert type(progress_on(stream, environment, quiet=quiet)).__name__ == kind


def test_silence_is_silent(capsys, tmp_path):
    play(progress_on(io.StringIO(), {}, quiet=True), sample_report(tmp_path))
    assert capsys.readouterr() == ("", "")
