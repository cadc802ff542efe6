"""What is seen of a run of which several targets are under way at once."""

from __future__ import annotations

import io
import re
import threading

import pytest
from rich.console import Console

from cudal1_ci.records import ModelUse
from cudal1_ci.render.parallel_progress import (
    LiveParallelProgress,
    ParallelTally,
    PlainParallelProgress,
    parallel_progress_on,
)
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import a_candidate, a_problem, a_target, an_evaluation

ONE, OTHER = a_target("a.py", "One"), a_target("b.py", "Other")
PROBLEM = a_problem()
FAST = an_evaluation(a_candidate(PROBLEM, "fast"), "passed", 2.0)
WRONG = an_evaluation(a_candidate(PROBLEM, "wrong"), "incorrect_values")


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def told(view, clock):
    """Two targets, in turns."""
    with view:
        view.start(4)
        for target in (ONE, OTHER):
            view.target_started(target)
        view.candidate_started(ONE, FAST.candidate)
        view.candidate_judged(ONE, FAST, False)
        view.candidate_judged(OTHER, WRONG, True)
        view.notice("lost seat-1:\nkilled")
        clock.now_s = 60.0
        view.target_ended(ONE)
        view.target_skipped(OTHER, "no file of that name\n  File model.py, line 3")
        view.target_ended(OTHER)


def test_every_line_names_its_target_and_none_is_folded():
    stream, clock = io.StringIO(), Clock()
    told(PlainParallelProgress(stream, has_warnings=True, tally=ParallelTally(clock)), clock)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "4 targets to look at"
    assert lines[1].startswith("[0/4] a.py:One, fake: passed, 2.00x [")
    assert lines[2].startswith("[0/4] b.py:Other, fake: ")
    assert lines[2].endswith("off by 1 (known from an earlier run)")
    assert lines[3:] == [
        "::warning::lost seat-1: killed",
        "[1/4] a.py:One: done",
        "[2/4] b.py:Other: skipped: no file of that name",
        "2 of 4 begun, 2 candidates, 1 failed",
    ]
    assert "group" not in stream.getvalue()


def test_no_path_becomes_a_workflow_command():
    stream = io.StringIO()
    view = PlainParallelProgress(stream, has_warnings=True)
    evil = a_target("::error::a\n::error::b.py", "x")
    view.start(1)
    view.target_skipped(evil, "no")
    view.candidate_judged(evil, FAST, False)
    view.target_ended(evil)
    assert not re.search("^::", stream.getvalue(), re.MULTILINE)


def test_a_terminal_shows_what_is_under_way_and_the_best():
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = LiveParallelProgress(console, ParallelTally(clock))
    use = ModelUse(model="coder", num_answers=1)
    with view:
        view.start(4)
        view.target_started(ONE)
        view.target_started(OTHER)
        view.candidate_judged(ONE, FAST, False)
        view.model_asked(ONE, use, 3)
        with console.capture() as captured:
            console.print(view._renderable())
        view.notice("lost seat-1")
    shown = captured.get()
    assert "0 of 4 done, 2 running, 1 candidate, 0 failed" in shown
    assert "trying a.py:One: asked coder: 1 answer, 3 to come" in shown
    assert "trying b.py:Other: the reference" in shown
    assert "a.py:One, fake: passed, 2.00x" in shown
    assert "lost seat-1" in console.file.getvalue()
    assert "2 of 4 begun, 1 candidate, 0 failed" in console.file.getvalue()


def test_lines_of_many_threads_are_whole():
    stream = io.StringIO()
    view = PlainParallelProgress(stream)
    view.start(400)

    def work(number):
        for index in range(50):
            target = a_target(f"{number}-{index}.py", "x")
            view.target_started(target)
            view.candidate_judged(target, FAST, False)
            view.target_ended(target)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert view.tally.line() == "400 of 400 done, 0 running, 400 candidates, 0 failed"
    lines = stream.getvalue().splitlines()
    assert len(lines) == 801
    assert all(
        re.fullmatch(r"\[\d+/400\] \d-\d+\.py:x(: done|, fake: .*)", one) for one in lines[1:]
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "quiet", "form"),
    [
        (Terminal(), {}, False, LiveParallelProgress),
        (Terminal(), {"TERM": "dumb"}, False, PlainParallelProgress),
        (Terminal(), {"GITHUB_ACTIONS": "true"}, False, PlainParallelProgress),
        (io.StringIO(), {}, False, PlainParallelProgress),
        (Terminal(), {}, True, SilentProgress),
    ],
)
def test_the_view_suits_its_stream(stream, environment, quiet, form):
    assert type(parallel_progress_on(stream, environment, quiet=quiet)) is form
