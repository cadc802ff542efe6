"""What the judge waited for its runners, and what each of them need not wait for."""

from __future__ import annotations

import threading
import time

import pytest

from cudal1_ci.records import Candidate
from cudal1_ci.sandboxed.timing.wait_times import Spent
from tests.unit.verification.test_session import problem_of, tensor

# What a session tells is rounded to this.
ROUNDED_S = 0.001


def test_what_was_waited_for_side_by_side_is_added_and_told_once():
    spent = Spent()

    def wait() -> None:
        with spent.over("load"):
            time.sleep(0.05)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times, seconds = spent.taken()["load"]
    assert times == 3
    assert 0.15 <= seconds < 5
    assert spent.taken() == {}


def test_what_fails_took_its_time_too():
    spent = Spent()
    with pytest.raises(RuntimeError), spent.over("call"):
        raise RuntimeError
    assert spent.taken()["call"][0] == 1


@pytest.mark.starts_verifier
def test_a_judge_says_what_of_its_time_its_runners_took(session, device):
    source = """
        class Model(nn.Linear):
            def __init__(self):
                super().__init__(16, {width})
    """
    # With the first problem of a judge its template imports what the program does.
    assert session.check(problem_of(source.format(width=5), tensor(4, 16))).status == "passed"
    problem = problem_of(source.format(width=3), tensor(4, 16))
    session.spent()
    started_s = time.monotonic()
    assert session.check(problem).status == "passed"
    took_s = time.monotonic() - started_s + ROUNDED_S
    spent, told = session.spent_on_runners, session.spent()
    assert told["ask check"][0] == 1
    assert 0 < told["check: load"][1] < told["ask check"][1] <= took_s
    assert {f"check: {what}" for what in spent} == told.keys() - {"ask check", "ask describe"}
    assert session.spent() == {}
    assert {"fork", "load", "call", "collect", "reap"} <= spent.keys()
    assert spent["load"][0] == 3
    # On a GPU each takes the process that waits, and another one is begun.
    assert spent["fork"][0] == 3
    assert spent.get("settle_in", [0])[0] == (3 if device == "cuda" else 0)
    assert 0 < sum(seconds for _, seconds in spent.values()) < took_s
    same = Candidate(problem_id=problem.id, program=problem.reference, proposer="test")
    assert session.examine(problem, same).status == "passed"
    assert session.spent_on_runners["fork"][0] == 1


@pytest.mark.starts_verifier
def test_a_runners_collector_leaves_alone_what_was_there_before_it(session):
    """Else each one looks at all of torch's objects as soon as it imports a program."""
    source = """
        import gc

        class Model(nn.Module):
            def forward(self, x):
                return x + 1

        seen, left_alone = len(gc.get_objects()), gc.get_freeze_count()
        if not gc.isenabled() or seen > left_alone // 10:
            raise RuntimeError(f"{seen} objects, {left_alone} left alone")
    """
    verdict = session.check(problem_of(source, tensor(4, 16)))
    assert verdict.status == "passed", verdict.log
