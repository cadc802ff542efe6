"""What is shown while a pool works."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cudal1_ci.pool import Judged, Task
from cudal1_ci.pool.view import LiveView, PlainView, Tally, view_on
from tests.fakes import a_candidate, a_problem, an_evaluation


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_task(name: str = "softmax") -> Task:
    problem = a_problem(f"class Model: {name}")
    candidates = tuple(a_candidate(problem, f"{name} {index}") for index in range(4))
    return Task(problem=problem, candidates=candidates, name=name)


def judged(task: Task, index: int, status="passed", speedup=2.0, *, is_known=False) -> Judged:
    evaluation = an_evaluation(task.candidates[index], status, speedup)
    return Judged(evaluation=evaluation, is_known=is_known)


def test_the_line_has_all_the_numbers():
    clock, task = Clock(), a_task()
    tally = Tally(num_candidates=8, clock=clock)
    tally.added(task, 4)
    tally.num_seats, tally.num_running = 2, 3
    tally.judged(judged(task, 0, is_known=True))
    assert tally.left_s() is None
    clock.now = 20.0
    tally.judged(judged(task, 1))
    tally.judged(judged(task, 2, "incorrect_values"))
    assert tally.left_s() == pytest.approx(50.0)
    assert tally.line() == ("3 of 8 done (1 known), 3 running on 2 seats, 1 failed, 50 s to go")


def test_how_long_it_takes_is_not_said_of_an_unknown_number():
    clock, task = Clock(), a_task()
    tally = Tally(clock=clock)
    tally.added(task, 4)
    clock.now = 5.0
    tally.judged(judged(task, 0))
    assert tally.left_s() is None
    assert tally.line() == "1 of 4 done, 0 running on 0 seats, 0 failed"


def test_the_best_of_each_problem_and_no_loss_is_shown():
    tally = Tally()
    tasks = [a_task("softmax"), a_task("gelu"), a_task("loser")]
    for task in tasks:
        tally.added(task, 4)
    tally.judged(judged(tasks[0], 0, speedup=1.5))
    tally.judged(judged(tasks[0], 1, speedup=3.0))
    tally.judged(judged(tasks[0], 2, speedup=2.0))
    tally.judged(judged(tasks[1], 0, speedup=5.0))
    tally.judged(judged(tasks[2], 0, speedup=0.5))
    assert [text.partition(",")[0] for text in tally.leaders()] == ["gelu", "softmax"]
    assert "3.00x" in tally.leaders()[1]


def test_a_log_has_a_line_for_each_verdict_and_says_what_was_measured_on():
    stream, task = io.StringIO(), a_task()
    with PlainView(stream, Tally()) as view:
        view.added(task, 4)
        view.seats(1, 1)
        view.judged(judged(task, 0))
        view.notice("lost node-3 GPU 0:\nkilled")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("[1/4] softmax, fake: passed, 2.00x")
    assert lines[1] == "lost node-3 GPU 0: killed"
    assert lines[2] == "1 of 4 done, 1 running on 1 seat, 0 failed"
    assert lines[3].startswith("1 candidate on fake")


def test_a_terminal_shows_the_line_and_the_best():
    stream, task = io.StringIO(), a_task()
    console = Console(file=stream, force_terminal=True, width=100)
    with LiveView(console, Tally()) as view:
        view.added(task, 4)
        view.seats(2, 1)
        view.judged(judged(task, 0))
        view._live.refresh()
    shown = stream.getvalue()
    assert "1 of 4 done, 1 running on 2 seats" in shown
    assert "softmax, fake: passed, 2.00x" in shown


@pytest.mark.parametrize(("is_terminal", "kind"), [(True, LiveView), (False, PlainView)])
def test_the_view_suits_the_stream(monkeypatch, is_terminal, kind):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    assert isinstance(view_on(stream, {"TERM": "xterm"}), kind)
