"""What `best` shows: the strategies of the product, and what they put together."""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.optimize.strategies import default_strategies, proposed_by
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.records import Candidate, Edit, Generation, TextProgram
from cudal1_ci.report_card.columns import COLUMNS, DEFAULT, CardConfig, column_of, strategies_for
from cudal1_ci.report_card.merge import merge
from cudal1_ci.report_card.page import render_page
from cudal1_ci.report_card.run import run
from cudal1_ci.report_card.tasks import Published
from cudal1_ci.report_card.worth import worth
from tests.fakes import FakeSession, an_evaluation
from tests.unit.propose.recorded.rig import problem_and_recording
from tests.unit.report_card.rig import Verifier, a_bench, a_task, found, told

SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
TASK = a_task(source=SOURCE)
GENERATION = Generation(model="coder", temperature=0.8, max_tokens=9, prompt_digest="0")


@functools.cache
def recording_of():
    """Return a recorded call of the task."""
    inputs = "\n\ndef get_inputs():\n    return [torch.ones(2, 3)]\n"
    with tempfile.TemporaryDirectory() as folder:
        return problem_and_recording(Path(folder), SOURCE + inputs)[1]


class Multiplying(FakeSession):
    """Knows rewrites and wrappers by a word in the text; their gains multiply."""

    def record(self, problem, workload):
        del problem, workload
        return recording_of()

    def evaluate(self, problem, candidate):
        source = candidate.program.source
        self.asked.append(source)
        speedup = (1.5 if "silu" in source else 1.0) * (2.0 if "torch.compile" in source else 1.0)
        return an_evaluation(candidate, "passed", speedup, [w.name for w in problem.workloads])


def product(folder, session, *columns, since=None):
    config = PlaybookConfig(compile=True)
    return a_bench(folder, session, None, since=since, columns=columns, playbook=config)


def test_a_combination_is_a_trial_of_best_and_what_it_is_worth(tmp_path):
    with product(tmp_path, Multiplying({}), "compile", "playbook") as bench:
        document = run(found(TASK), *bench)
    (task,) = document.tasks
    assert [result.solver for result in task.results] == ["compile", "playbook", "best"]
    (trial,) = task.results[-1].trials
    assert trial.candidate.proposer == "playbook:activation+compile"
    assert "@torch.compile" in trial.code
    best = worth(task, "best")
    assert (best.solver, best.trial) == ("best", trial)
    assert best.speedup == pytest.approx(3.0, rel=0.02)
    assert worth(task, "playbook").speedup == pytest.approx(1.5, rel=0.02)
    assert {row.solver: row for row in document.card}["best"].num_given == 1
    page = render_page(document)
    assert '<span class="place">playbook:activation+compile</span>' in page
    assert 'id="m0t0-best"' in page


def test_what_has_no_column_of_its_own_is_a_trial_of_best(tmp_path):
    with product(tmp_path, Multiplying({})) as bench:
        (task,) = run(found(TASK), *bench).tasks
    (best,) = task.results
    names = [trial.candidate.proposer for trial in best.trials]
    assert names == ["playbook:activation", "playbook:compile", "playbook:activation+compile"]


def test_a_kill_in_the_turn_of_best_leaves_its_task_out_until_it_goes_on(tmp_path):
    class Killed(Multiplying, Verifier):
        def evaluate(self, problem, candidate):
            if self.num_answers == self.stops_after:
                raise KeyboardInterrupt
            self.num_answers += 1
            return Multiplying.evaluate(self, problem, candidate)

    began, columns = time.time(), ("compile", "playbook")
    with product(tmp_path, Killed({}, stops_after=2), *columns, since=began) as bench:
        cut = run(found(TASK), *bench)
    assert (cut.ended, cut.tasks[0].standing) == ("interrupted", "missing")
    again = Killed({})
    with product(tmp_path, again, *columns, since=began) as bench:
        whole = run(found(TASK), *bench)
    assert whole.tasks[0].standing == "judged"
    assert again.num_answers == 1, "the combination alone"
    assert merge([cut]).tasks[0].standing == "missing"
    assert merge([cut, whole]).tasks[0].standing == "judged"
    assert worth(merge([whole, cut]).tasks[0], "best").solver == "best"


def test_a_run_from_before_best_had_trials_stands_as_it_was_judged():
    old = told(a_task(), {"compile": 1.5, "playbook": 2.0})
    assert worth(old, "best").solver == "playbook"


def test_combinations_that_failed_leave_the_best_column():
    task = told(a_task(), {"compile": 1.5, "playbook": 2.0, "best": "incorrect_values"})
    assert worth(task, "best").solver == "playbook"
    gain = msgspec.structs.replace(task, results=(task.results[2],))
    assert worth(gain, "best").solver == "reference"


def operators_proposed(columns, kind, config=None):
    task = msgspec.structs.replace(TASK, published=(Published(origin="h100", code=SOURCE),))
    config = CardConfig(columns=columns, playbook=config or PlaybookConfig(compile=True))
    return [
        one.proposer
        for strategy in strategies_for(task, config, kind)
        for one in proposed_by(strategy, task.problem, recording_of(), (), 20)
    ]


def test_columns_choose_strategies():
    assert operators_proposed(("eager",), "cuda") == ["eager"]
    assert operators_proposed(("playbook",), "cuda") == ["playbook:activation"]
    assert operators_proposed(("cuda-graph",), "cuda") == ["playbook:cuda_graph"]
    assert operators_proposed(("cuda-graph",), "cpu") == []
    assert operators_proposed(("published",), "cpu") == ["published:h100"]
    slow = ("compile-reduce-overhead", "compile-max-autotune")
    names = ["playbook:compile_reduce_overhead", "playbook:compile_max_autotune"]
    assert operators_proposed(slow, "cuda") == names
    every = operators_proposed(COLUMNS, "cuda")
    assert every == [
        "eager",
        "playbook:activation",
        "playbook:compile",
        "playbook:cuda_graph",
        *names,
        "published:h100",
    ]
    assert operators_proposed(DEFAULT, "cuda") == [one for one in every if one not in names]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_best_is_what_scan_proposes(kind):
    config = PlaybookConfig(compile=True)
    strategies = default_strategies(config, kind)
    of_scan = [
        one
        for each in strategies
        for one in proposed_by(each, TASK.problem, recording_of(), (), 20)
    ]
    assert operators_proposed(("best",), kind, config) == [one.proposer for one in of_scan]


def described(proposer, *operators, is_written=False):
    edits = tuple(
        Edit(operator=one, technique="t", found=("here",), why="It is faster.") for one in operators
    )
    return Candidate(
        problem_id=TASK.problem.id,
        program=TextProgram(source="x", entry="Model"),
        proposer=proposer,
        edits=edits,
        generation=GENERATION if is_written else None,
    )


@pytest.mark.parametrize(
    ("candidate", "column"),
    [
        (described("eager"), "eager"),
        (described("published:h100"), "published"),
        (described("playbook:silu", "silu"), "playbook"),
        (described("playbook:silu+gelu", "silu", "gelu"), "playbook"),
        (described("playbook:compile", "compile"), "compile"),
        (described("playbook:cuda_graph", "cuda_graph"), "cuda-graph"),
        (described("playbook:cudnn_benchmark", "cudnn_benchmark"), "best"),
        (described("playbook:compile+cuda_graph", "compile", "cuda_graph"), "best"),
        (described("playbook:silu+compile", "silu", "compile"), "best"),
        (described("model:coder", is_written=True), "contrastive"),
        (described("model:coder+silu", "silu", is_written=True), "best"),
    ],
)
def test_a_candidate_is_shown_in_the_column_of_what_made_it(candidate, column):
    assert column_of(candidate, COLUMNS) == column
    assert column_of(candidate, ("best",)) == "best"
