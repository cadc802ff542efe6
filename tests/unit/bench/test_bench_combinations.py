"""What `best` proposes by itself: which finds are put together, in what order, what they count."""

from __future__ import annotations

import time

import msgspec
import pytest

from cudal1_ci.bench.combinations import combinations
from cudal1_ci.bench.merge import merge
from cudal1_ci.bench.page import render_page
from cudal1_ci.bench.run import run
from cudal1_ci.bench.worth import worth
from cudal1_ci.schema import Candidate, TextProgram
from tests.fakes import FakeSession, a_problem, an_evaluation
from tests.unit.bench.rig import Judge, a_bench, a_task, found, told

PROBLEM = a_problem()
REWRITTEN = "class Model: ... # rewritten"


def judged(proposer, status="passed", speedup=1.0, source="class Model: pass", entry="Model"):
    program = TextProgram(source=source, entry=entry)
    candidate = Candidate(
        problem_id=PROBLEM.id, program=program, proposer=proposer, techniques=("algebra",)
    )
    return an_evaluation(candidate, status, speedup)


def wrapped(**speedups):
    """By column a speedup, or a status that is no pass."""
    return {
        name.replace("_", "-"): [
            judged(name, worth, source=name)
            if isinstance(worth, str)
            else judged(name, speedup=worth, source=name)
        ]
        for name, worth in speedups.items()
    }


def proposers(columns):
    return [one.proposer for one in combinations(PROBLEM, columns)]


def test_rewrites_that_gained_are_wrapped_the_most_promising_first():
    columns = {
        "eager": [judged("eager")],
        **wrapped(compile=1.1, cuda_graph=2.0),
        "playbook": [
            judged("playbook:silu", speedup=1.2, source="silu"),
            judged("playbook:mish", speedup=0.9, source="mish"),
            judged("playbook:sdpa", "incorrect_values", source="sdpa"),
            judged("playbook:silu+linear", speedup=1.5, source="both"),
        ],
    }
    first = combinations(PROBLEM, columns)[0]
    assert proposers(columns) == [
        "best:playbook:silu+linear+cuda-graph",
        "best:playbook:silu+linear+compile",
        "best:playbook:silu+cuda-graph",
        "best:playbook:silu+compile",
    ]
    assert first.program.entry == "ModelNew"
    assert first.program.source.startswith("both")
    assert "CUDAGraph" in first.program.source
    assert first.techniques == ("algebra", "CUDA graph")


def test_what_is_slower_is_left_out_and_what_failed_comes_last():
    columns = {
        **wrapped(compile="runtime_error", compile_reduce_overhead=0.5, cuda_graph=1.0),
        "playbook": [judged("playbook:silu", speedup=1.2)],
    }
    assert proposers(columns) == [
        "best:playbook:silu+cuda-graph",
        "best:playbook:silu+compile",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        wrapped(compile=2.0),
        {**wrapped(compile=2.0), "playbook": []},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", speedup=1.01)]},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", "timeout")]},
        {"playbook": [judged("playbook:silu", speedup=3.0)]},
        {"cuda-graph": [], "playbook": [judged("playbook:silu", speedup=3.0)]},
        {**wrapped(compile=2.0), "published": [judged("published:h100", speedup=3.0)]},
        {**wrapped(compile=2.0), "playbook": [judged("playbook:x", speedup=3.0, entry="Other")]},
    ],
    ids=[
        "nothing judged",
        "no rewrites asked for",
        "no rewrite matched",
        "no rewrite gained",
        "no rewrite passed",
        "no wrapper asked for",
        "no wrapper could be made",
        "only others gained",
        "another class",
    ],
)
def test_where_there_is_nothing_to_put_together_nothing_is_proposed(columns):
    assert combinations(PROBLEM, columns) == []


def test_what_was_judged_is_not_proposed_again():
    columns = {**wrapped(compile=2.0), "playbook": [judged("playbook:silu", speedup=1.5)]}
    (made,) = combinations(PROBLEM, columns)
    columns["best"] = [an_evaluation(made)]
    assert combinations(PROBLEM, columns) == []


class Model(FakeSession):
    """Knows rewrites and wrappers by a word in the text, their gains multiply."""

    def evaluate(self, problem, candidate):
        source = candidate.program.source
        self.asked.append(source)
        speedup = (1.5 if "rewritten" in source else 1.0) * (2.0 if "compile" in source else 1.0)
        return an_evaluation(candidate, "passed", speedup, [w.name for w in problem.workloads])


PROPOSED = {"compile": ["torch.compile"], "playbook": [REWRITTEN]}


@pytest.fixture
def rewriting(monkeypatch):
    """The rig's proposers answer `ModelNew`; the playbook keeps the reference's class."""
    monkeypatch.setattr(
        "tests.unit.bench.rig.a_candidate",
        lambda problem, source: Candidate(
            problem_id=problem.id,
            program=TextProgram(source=source, entry="Model"),
            proposer=f"playbook:{source[-9:]}",
        ),
    )


def test_a_combination_is_a_trial_of_best_and_what_it_is_worth(tmp_path, rewriting):
    with a_bench(tmp_path, Model({}), PROPOSED) as bench:
        document = run(found(a_task()), bench)
    (task,) = document.tasks
    assert [result.solver for result in task.results] == ["compile", "playbook", "best"]
    (trial,) = task.results[-1].trials
    assert trial.candidate.proposer == "best:playbook:rewritten+compile"
    assert "torch.compile(" in trial.code
    best = worth(task, "best")
    assert (best.solver, best.trial) == ("best", trial)
    assert best.speedup == pytest.approx(3.0, rel=0.02)
    assert worth(task, "playbook").speedup == pytest.approx(1.5, rel=0.02)
    assert {row.solver: row.num_given for row in document.card}["best"] == 1
    page = render_page(document)
    assert '<span class="place">best:playbook:rewritten+compile</span>' in page
    assert 'id="m0t0-best"' in page


def test_a_kill_in_the_turn_of_best_leaves_its_task_out_until_it_goes_on(tmp_path, rewriting):
    class Killed(Model, Judge):
        def evaluate(self, problem, candidate):
            if self.num_answers == self.stops_after:
                raise KeyboardInterrupt
            self.num_answers += 1
            return Model.evaluate(self, problem, candidate)

    began = time.time()
    with a_bench(tmp_path, Killed({}, stops_after=2), PROPOSED, since=began) as bench:
        cut = run(found(a_task()), bench)
    assert (cut.ended, cut.tasks[0].standing) == ("interrupted", "missing")
    assert [result.solver for result in cut.tasks[0].results] == ["compile", "playbook"]
    again = Killed({})
    with a_bench(tmp_path, again, PROPOSED, since=began) as bench:
        whole = run(found(a_task()), bench)
    assert whole.tasks[0].standing == "judged"
    assert again.num_answers == 1, "the combination alone"
    assert merge([cut]).tasks[0].standing == "missing"
    assert merge([cut]).tasks[0].reason == "no result of best"
    assert merge([cut, whole]).tasks[0].standing == "judged"
    assert worth(merge([whole, cut]).tasks[0], "best").solver == "best"


def test_a_run_from_before_best_had_trials_stands_as_it_was_judged():
    old = told(a_task(), {"compile": 1.5, "playbook": 2.0})
    assert worth(old, "best").solver == "playbook"


def test_combinations_that_failed_leave_the_best_column(tmp_path):
    task = told(a_task(), {"compile": 1.5, "playbook": 2.0, "best": "incorrect_values"})
    assert worth(task, "best").solver == "playbook"
    gain = msgspec.structs.replace(task, results=(task.results[2],))
    assert worth(gain, "best").solver == "reference"
