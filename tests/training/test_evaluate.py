"""Evaluations: samples of each task, judged, and the row of the table."""

from __future__ import annotations

import json

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.optimize.llm_loop import PROFILE
from cudal1_ci.records import Verdict
from cudal1_ci.records.archive import Archive
from model_training.asking import first_prompt
from model_training.evaluate import EvaluateConfig, Evaluated, evaluate
from model_training.examples import original, question
from model_training.rollouts import Completion, Sampling
from model_training.run import Stopped
from model_training.table import table
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, answer_to
from tests.training.toy_stages import TASKS, opened, scorer

BY_NAME = {one.name: one for one in PROGRAMS}


class Scripted:
    """Answers with programs by their names, others for another seed."""

    def __init__(self, *names):
        self.names, self.asked = names, []

    def sample(self, prompts, n, settings, seed):
        self.asked.append((len(prompts), n, settings.temperature, seed))
        names = self.names
        return [
            [Completion(text=answer_to(BY_NAME[names[(i + seed) % len(names)]])) for i in range(n)]
            for _ in prompts
        ]

    def renew(self):
        pass


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "evaluation.sqlite") as found:
        yield found


def run_of(tmp_path, **options):
    return opened(tmp_path / "run", tmp_path, **options)


CONFIG = EvaluateConfig(k=4, seeds=(3, 1), sampling=Sampling(temperature=0.8, max_tokens=16))


def test_an_evaluation_is_samples_of_each_task_and_a_row(archive, tmp_path):
    rollouts = Scripted("indexed", "wrong", "copy", "kept")
    with run_of(tmp_path) as run:
        first, second = evaluate("base", TASKS, rollouts, scorer(archive), CONFIG, run, "base")
    assert rollouts.asked == [(4, 4, 0.8, 3), (4, 4, 0.8, 1)]
    assert (first.seed, second.seed) == (3, 1)
    assert (first.table.num_tasks, first.table.num_samples) == (4, 16)
    assert first.table.correct.value == 0.25
    assert first.table.hacks == 4
    assert first.table.pass_at_k.value == 1.0
    assert first.table == table(first.samples, 4)
    folder = tmp_path / "run" / "evaluations"
    assert sorted(path.name for path in folder.iterdir()) == ["base-1.json", "base.json"]
    written = msgspec.json.decode((folder / "base.json").read_bytes(), type=Evaluated)
    assert written == first
    said = json.loads((folder / "base.json").read_text())
    assert {"name", "policy", "k", "temperature", "seed", "samples", "table"} <= set(said)
    lines = (tmp_path / "run" / "samples" / "evaluation-base.jsonl").read_text().splitlines()
    assert len(lines) == 32
    with_messages = [one for one in map(json.loads, lines) if "messages" in one]
    assert len(with_messages) == 8


def test_what_was_evaluated_is_not_evaluated_again(archive, tmp_path):
    with run_of(tmp_path) as run:
        found = evaluate("base", TASKS, Scripted("same"), scorer(archive), CONFIG, run, "base")
    with run_of(tmp_path, is_resumed=True) as run:
        assert evaluate("base", TASKS, None, scorer(archive), CONFIG, run, "base") == found


def test_an_evaluation_that_was_stopped_judges_nothing_twice(archive, tmp_path):
    class Stopping(ToyJudge):
        def evaluate(self, problem, candidate):
            if len(self.asked) == 3:
                run._signal = "SIGTERM"
            return super().evaluate(problem, candidate)

    rollouts, judge = Scripted("indexed", "wrong"), Stopping()
    with run_of(tmp_path) as run, pytest.raises(Stopped, match="SIGTERM"):
        evaluate("base", TASKS, rollouts, scorer(archive, judge, run), CONFIG, run, "base")
    assert len(judge.asked) == 4
    again = ToyJudge()
    with run_of(tmp_path, is_resumed=True) as run:
        evaluate("base", TASKS, rollouts, scorer(archive, again, run), CONFIG, run, "base")
    assert len(again.asked) == 8 - 4, "what is left"


class Refusing(ToyJudge):
    def __init__(self, *refused):
        super().__init__()
        self.refused = refused

    def check(self, problem, most_s=None):
        names = {one.problem.id: one.name for one in TASKS}
        refused = names[problem.id] in self.refused
        return Verdict(status="invalid_reference" if refused else "passed")

    def profile(self, workload, *, is_candidate):
        return [{"name": "aten::diag", "num_calls": 2, "time_us": 3.0}]


def test_tasks_without_a_valid_reference_are_counted_and_left_out(archive, tmp_path):
    judge = Refusing("toy-1")
    with run_of(tmp_path) as run:
        found = evaluate("base", TASKS, Scripted("same"), scorer(archive, judge), CONFIG, run, "b")
    assert found[0].num_refused == 1
    assert {one.task for one in found[0].samples} == {"toy-0", "toy-2", "toy-3"}
    names = [one.name for one in TASKS]
    with (
        opened(tmp_path / "other", tmp_path) as run,
        Archive.open(tmp_path / "other.sqlite") as empty,
        pytest.raises(ConfigError, match="reference of none of 4 tasks"),
    ):
        evaluate("base", TASKS, Scripted("same"), scorer(empty, Refusing(*names)), CONFIG, run, "b")


def test_the_question_is_the_products_first_with_the_profile(archive):
    task = TASKS[0]
    without = first_prompt(task, archive, DEVICE)
    scorer(archive, Refusing()).usable([task])
    found = first_prompt(task, archive, DEVICE)
    assert archive.all_noted(PROFILE, list)
    assert "aten::diag" in found.messages[-1].content
    assert "aten::diag" not in without.messages[-1].content
    asked = question(task.problem, DEVICE, (), (original(task.problem),))
    assert asked.name == "ModelNew"
    assert found.exemplar_ids == ()


def test_two_seeds_that_are_one_are_refused():
    with pytest.raises(ConfigError, match=r"evaluate\.seeds"):
        EvaluateConfig(seeds=(1, 1))
