"""The loop: what is asked, what is kept, what is asked again."""

from __future__ import annotations

import itertools
import time

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Finding, Verdict
from cudal1_ci.report_card.run import run, spread
from cudal1_ci.report_card.worth import worth
from tests.fakes import FakeSession, Waiting
from tests.unit.report_card.rig import Always, Verifier, a_bench, a_task, found

ANSWERS = {"faster": ("passed", 2.0), "slower": ("passed", 0.5), "wrong": ("incorrect_values", 1.0)}
PROPOSED = {"compile": ["slower"], "playbook": ["wrong", "faster"], "published": []}


def test_every_column_has_its_turn_and_best_chooses_from_ours(tmp_path):
    with a_bench(tmp_path, FakeSession(ANSWERS), PROPOSED) as bench:
        document = run(found(a_task()), *bench)
    (task,) = document.tasks
    assert (document.ended, task.standing) == ("done", "judged")
    assert [result.solver for result in task.results] == [
        "compile",
        "playbook",
        "published",
        "best",
    ]
    assert task.results[-1].trials == (), "there was nothing to put together"
    assert [trial.status for trial in task.results[1].trials] == ["incorrect_values", "passed"]
    assert task.results[1].trials[1].code == "faster"
    by_solver = {row.solver: row for row in document.card}
    assert by_solver["compile"].mean.estimate == pytest.approx(0.5, rel=0.02)
    assert by_solver["best"].mean.estimate == pytest.approx(2.0, rel=0.02)
    assert (by_solver["published"].num_success, by_solver["published"].num_given) == (0, 0)
    assert worth(task, "best").solver == "playbook"


def test_what_others_published_is_judged_when_all_of_ours_is(tmp_path):
    """It is built meanwhile."""
    proposed = {"playbook": ["faster"], "published": ["slower"], "cuda-graph": ["graph"]}
    session = Verifier({**ANSWERS, "graph": ("passed", 3.0)})
    with a_bench(tmp_path, session, proposed) as bench:
        (task,) = run(found(a_task()), *bench).tasks
    asked = [one for one in session.asked if one in ("faster", "graph", "slower")]
    assert asked == ["faster", "graph", "slower"] and session.asked[-1] == "slower"
    columns = ["cuda-graph", "playbook", "published", "best"]
    assert [one.solver for one in task.results] == columns


def test_a_kill_loses_nothing_and_a_run_that_goes_on_asks_nothing_twice(tmp_path):
    tasks = found(a_task("level1/1"), a_task("level1/2", "class Model: pass"))
    answers = {**ANSWERS, "wrong": ("inconclusive", 1.0)}
    began = time.time()
    with a_bench(tmp_path, Verifier(answers, stops_after=4), PROPOSED, since=began) as bench:
        document = run(tasks, *bench)
    assert document.ended == "interrupted"
    assert [task.standing for task in document.tasks] == ["judged", "missing"]
    again = Verifier(answers)
    with a_bench(tmp_path, again, PROPOSED, since=began) as bench:
        document = run(tasks, *bench)
    assert (document.ended, {task.standing for task in document.tasks}) == ("done", {"judged"})
    assert again.num_answers == 2, "six candidates, four of which were judged before"
    assert "reference" not in again.asked
    later = Verifier(answers)
    with a_bench(tmp_path, later, PROPOSED, since=time.time() + 1) as bench:
        run(tasks, *bench)
    assert later.asked == ["wrong", "wrong"], "another run asks what could not be decided"


def test_a_spent_budget_leaves_the_rest_out_of_every_column(tmp_path):
    tasks = found(a_task("level1/1"), a_task("level1/2", "class Model: pass"))
    with a_bench(tmp_path, FakeSession(ANSWERS), PROPOSED, budget_s=0.0) as bench:
        document = run(tasks, *bench)
    assert document.ended == "budget"
    assert {task.standing for task in document.tasks} == {"missing"}
    assert all("budget was spent" in (task.reason or "") for task in document.tasks)
    assert document.card == ()


@pytest.mark.parametrize("count", [1, 7, 60, 250])
def test_what_a_budget_reaches_is_spread_over_all_tasks(count):
    order = spread(count)
    assert sorted(order) == list(range(count))
    for reached in range(1, count + 1):
        found = sorted(order[:reached])
        gaps = [after - before for before, after in itertools.pairwise([0, *found, count])]
        assert max(gaps) <= 3 * count / reached + 1, "no stretch of tasks is left out"


def test_with_a_budget_tasks_are_told_in_their_order_and_taken_in_another(tmp_path):
    names = [f"level{level}/{number}" for level in (1, 2, 3) for number in range(4)]
    tasks = found(*(a_task(name, f"class Model:  # {name}") for name in names))

    class Noting(FakeSession):
        def check(self, problem, most_s=None):
            taken.append(problem.reference.source.rpartition(" ")[2])
            return super().check(problem)

    for budget_s, order in ((None, range(12)), (60.0, spread(12))):
        taken = []
        folder = tmp_path / str(budget_s)
        folder.mkdir()
        with a_bench(folder, Noting(ANSWERS), PROPOSED, budget_s=budget_s) as bench:
            document = run(tasks, *bench)
        assert taken == [names[number] for number in order]
        assert [task.name for task in document.tasks] == names
    assert {name[:6] for name in taken[:4]} == {"level1", "level2", "level3"}


def test_a_spent_budget_ends_the_waiting_for_a_build_and_a_run_that_goes_on_judges_it(tmp_path):
    class Building(FakeSession):
        """As long as there is a budget, the last candidate is being built."""

        def in_turn(self, candidates, is_over=lambda: False):
            *ready, building = candidates
            yield from ready
            deadline_s = time.monotonic() + 10
            while not is_over() and time.monotonic() < deadline_s:
                time.sleep(0.01)
            yield building

    proposed = {"playbook": ["faster", "slower"]}
    began = time.time()
    first, second = Building(ANSWERS), FakeSession(ANSWERS)
    with a_bench(tmp_path, first, proposed, since=began, budget_s=1.0) as bench:
        document = run(found(a_task()), *bench)
    assert first.asked == ["reference", "faster"]
    assert (document.ended, document.tasks[0].standing) == ("budget", "missing")
    with a_bench(tmp_path, second, proposed, since=began) as bench:
        document = run(found(a_task()), *bench)
    assert second.asked == ["slower"]
    assert (document.ended, document.tasks[0].standing) == ("done", "judged")


@pytest.mark.parametrize("what", ["reference", "slower"])
def test_a_budget_ends_while_another_process_has_the_device_and_loses_nothing(tmp_path, what):
    proposed = {"playbook": ["faster", "slower"]}
    began = time.time()
    with a_bench(tmp_path, Waiting(ANSWERS, [what]), proposed, since=began, budget_s=1.0) as bench:
        document = run(found(a_task()), *bench)
    (task,) = document.tasks
    assert (document.ended, task.standing) == ("budget", "missing")
    assert task.reason == "not reached: the budget was spent"
    again = FakeSession(ANSWERS)
    with a_bench(tmp_path, again, proposed, since=began) as bench:
        assert run(found(a_task()), *bench).ended == "done"
    assert again.asked == (["slower"] if what == "slower" else ["reference", "faster", "slower"])


@pytest.mark.parametrize(
    ("status", "standing"), [("degenerate", "degenerate"), ("invalid_reference", "invalid")]
)
def test_a_reference_that_says_nothing_is_named_and_in_no_column(tmp_path, status, standing):
    session = FakeSession(ANSWERS, reference=status)
    with a_bench(tmp_path, session, PROPOSED) as bench:
        document = run(found(a_task()), *bench)
    assert document.tasks[0].standing == standing
    assert document.tasks[0].reason
    assert document.card == ()
    assert session.asked == ["reference"]


def test_a_judge_that_dies_costs_the_rest_of_its_task_and_is_asked_again(tmp_path):
    class Dying(FakeSession):
        def evaluate(self, problem, candidate):
            if candidate.program.source == "slower":
                raise WorkerError("the judge died")
            return super().evaluate(problem, candidate)

    began = time.time()
    with a_bench(tmp_path, Dying(ANSWERS), PROPOSED, since=began) as bench:
        document = run(found(a_task()), *bench)
    (task,) = document.tasks
    reason = "the verifier failed: the judge died"
    assert task.standing == "judged"
    assert {result.failure for result in task.results} == {reason}, "each may lack candidates"
    assert worth(task, "playbook").is_success
    assert not worth(task, "compile").is_success
    again = FakeSession(ANSWERS)
    with a_bench(tmp_path, again, PROPOSED, since=began) as bench:
        assert run(found(a_task()), *bench).tasks[0].results[0].failure is None
    assert again.asked == ["slower"]


def test_a_strategy_that_fails_costs_its_own_column(tmp_path, monkeypatch):
    class Broken(Always):
        def propose(self, problem, evaluations, n):
            if self.column == "playbook":
                raise RecursionError("too deep")
            return super().propose(problem, evaluations, n)

    monkeypatch.setattr("tests.unit.report_card.rig.Always", Broken)
    with a_bench(tmp_path, FakeSession(ANSWERS), PROPOSED) as bench:
        (task,) = run(found(a_task()), *bench).tasks
    failed = {result.solver: result.failure for result in task.results}
    assert "RecursionError: too deep" in failed.pop("playbook")
    assert set(failed.values()) == {None}
    assert worth(task, "compile").is_success


def test_a_column_that_lacks_memory_leaves_the_task_out_until_a_run_has_enough(tmp_path):
    class Crowded(FakeSession):
        def evaluate(self, problem, candidate):
            found = super().evaluate(problem, candidate)
            finding = Finding(rule="memory.device", message="this GPU is shared by 8 judges")
            verdict = Verdict(status="inconclusive", findings=(finding,))
            return msgspec.structs.replace(found, verdict=verdict, measurements=())

    with a_bench(tmp_path, Crowded(ANSWERS), {"playbook": ["faster"]}) as bench:
        document = run(found(a_task()), *bench)
    (task,) = document.tasks
    assert (document.ended, document.card) == ("done", ())
    assert (task.standing, len(task.results[0].trials)) == ("missing", 1)
    assert task.reason.startswith("too little of the device's memory for playbook: run it again")
    with a_bench(tmp_path, FakeSession(ANSWERS), {"playbook": ["faster"]}) as bench:
        (task,) = run(found(a_task()), *bench).tasks
    assert task.standing == "judged"
    assert worth(task, "playbook").is_success


def test_by_cuda_l1s_rules_a_jump_is_measured_again_once(tmp_path):
    session = FakeSession({"much faster": ("passed", 4.0)})
    began = time.time()
    for _ in range(2):
        with a_bench(
            tmp_path, session, {"playbook": ["much faster"]}, since=began, policy="cuda-l1"
        ) as bench:
            document = run(found(a_task()), *bench)
    assert session.asked == ["reference", "much faster", "much faster"]
    assert {row.policy for row in document.card} == {"strict", "cuda-l1"}
    assert document.tasks[0].results[0].trials[0].doubted is None
