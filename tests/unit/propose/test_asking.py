"""Several questions at once, and none twice."""

from __future__ import annotations

import threading
import time

import pytest

from cudal1_ci.propose.llm.asking import Asker, Question
from cudal1_ci.propose.llm.servers import Answer, Message
from cudal1_ci.records.archive import Archive
from tests.fakes import FakeModel


def question(seed: int, text: str = "make it faster") -> Question:
    return Question(messages=(Message(role="user", content=text),), seed=seed)


def an_asker(model, archive, num_concurrent: int, is_over=lambda: False) -> Asker:
    return Asker(model, archive, num_concurrent, is_over)


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as opened:
        yield opened


def test_every_question_gets_its_own_answer(archive):
    model = FakeModel(lambda messages, seed: f"answer {seed}")
    asker = an_asker(model, archive, num_concurrent=3)
    found = {q.seed: a.text for q, a in asker.answers([question(i) for i in range(7)])}
    assert found == {i: f"answer {i}" for i in range(7)}


def test_what_was_answered_is_not_asked_again_by_another_run(archive):
    questions = [question(1), question(2), question(1, "something else")]
    first = FakeModel(lambda messages, seed: f"{messages[0].content} {seed}")
    before = {q: a.text for q, a in an_asker(first, archive, 2).answers(questions)}
    second = FakeModel(lambda messages, seed: "other")
    after = {q: a.text for q, a in an_asker(second, archive, 2).answers([*questions, question(3)])}
    assert second.asked == [3]
    assert after == before | {question(3): "other"}


def test_another_model_is_asked_anew(archive):
    list(an_asker(FakeModel(lambda m, s: "one"), archive, 1).answers([question(1)]))
    other = FakeModel(lambda m, s: "two", name="another")
    ((_, answer),) = an_asker(other, archive, 1).answers([question(1)])
    assert answer.text == "two"


def test_a_failure_is_an_answer_that_is_asked_again_the_next_time(archive):
    failing = FakeModel(lambda m, s: Answer(failure="rate_limit", message="429"))
    ((_, answer),) = an_asker(failing, archive, 1).answers([question(1)])
    assert answer.failure == "rate_limit"
    ((_, answer),) = an_asker(FakeModel(lambda m, s: "now"), archive, 1).answers([question(1)])
    assert answer.text == "now"


def test_a_bug_of_a_model_costs_its_answer_and_no_more(archive):
    def broken(messages, seed):
        if seed == 1:
            raise ZeroDivisionError("division by zero")
        return "fine"

    found = dict(an_asker(FakeModel(broken), archive, 2).answers([question(1), question(2)]))
    assert found[question(1)].failure == "server"
    assert "ZeroDivisionError" in found[question(1)].message
    assert found[question(2)].text == "fine"


def test_no_more_at_once_than_was_said(archive):
    running, most = [], []
    lock = threading.Lock()

    def slow(messages, seed):
        with lock:
            running.append(seed)
            most.append(len(running))
        time.sleep(0.05)
        with lock:
            running.remove(seed)
        return "x"

    list(
        an_asker(FakeModel(slow), archive, num_concurrent=3).answers(
            [question(i) for i in range(9)]
        )
    )
    assert max(most) == 3


def test_who_stops_listening_ends_what_is_under_way(archive):
    model = FakeModel(lambda m, s: "first" if s == 0 else model.waited())
    answers = an_asker(model, archive, num_concurrent=2).answers([question(i) for i in range(2)])
    assert next(answers)[1].text == "first"
    started_s = time.monotonic()
    answers.close()
    assert model.is_cancelled.is_set()
    assert time.monotonic() - started_s < 5


def test_the_time_in_which_nobody_waited_is_not_counted_as_waiting(archive):
    asker = an_asker(FakeModel(lambda m, s: time.sleep(0.2) or "x"), archive, num_concurrent=1)
    for _ in asker.answers([question(1), question(2)]):
        time.sleep(0.3)  # the judge is busy while the second answer is written
    assert 0.35 < asker.times.generating_s < 0.6
    assert 0.15 < asker.times.waiting_s < 0.35


def test_when_the_time_is_over_what_is_under_way_is_ended(archive):
    model = FakeModel(lambda m, s: model.waited())
    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    started_s = time.monotonic()
    assert list(an_asker(model, archive, 2, over.is_set).answers([question(1), question(2)])) == []
    assert model.is_cancelled.is_set()
    assert time.monotonic() - started_s < 5
