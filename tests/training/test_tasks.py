"""Tasks for training: what is generated can be judged, and nothing of it is in the evaluation."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Call, Made
from model_training.tasks.contamination import hits, refuse_contamination
from model_training.tasks.families import FAMILIES
from model_training.tasks.fingerprint import fingerprints, form, jaccard
from model_training.tasks.generate import distinct, generate
from model_training.tasks.kernelbench import kernelbench
from model_training.tasks.record import Task
from model_training.tasks.splits import TasksConfig, split
from tests.training.tiny import TINY

TEXT = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax of a product."""

    def __init__(self, features):
        super().__init__()
        self.fc = nn.Linear(features, features)

    def forward(self, x):
        y = self.fc(x)  # the product
        return torch.softmax(y, dim=1) * 2.0


features = 64


def get_inputs():
    return [torch.randn(16, features)]


def get_init_inputs():
    return [features]
'''


def a_task(text: str = TEXT, name: str = "one") -> Task:
    return Task(source="generated", name=name, family="softmax", text=text)


def fine(tasks):
    return [{"problem": None} for _ in tasks]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_of_a_family_is_written_and_is_python(family):
    texts = [generate(seed, family).text for seed in range(150)]
    assert len(set(texts)) == len(texts)
    for text in texts:
        ast.parse(text)
        assert max(map(len, text.splitlines())) < 140
    said = " ".join(text.splitlines()[0].lower() for text in texts)
    assert all(step.lower() in said for step in FAMILIES[family].steps)


def test_a_seed_is_a_task():
    assert generate(7, "attention") == generate(7, "attention")
    assert generate(7, "attention").text != generate(8, "attention").text


@pytest.mark.parametrize("number", [300, pytest.param(1500, marks=pytest.mark.slow)])
def test_many_tasks_differ_by_more_than_names_and_numbers(number):
    tasks = list(itertools.islice(distinct(list(FAMILIES)), number))
    forms = {form(task.text) for task in tasks}
    assert len(forms) == len(tasks) == number


def test_what_is_generated_runs_is_deterministic_and_depends_on_its_inputs():
    tasks = [generate(seed, family, TINY) for family in FAMILIES for seed in range(8)]
    lines = "".join(json.dumps({"name": t.name, "text": t.text}) + "\n" for t in tasks)
    done = subprocess.run(
        [sys.executable, "-m", "model_training.tasks.probe"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["name"] for one in said] == [task.name for task in tasks]
    refused = [one for one in said if one["problem"]]
    # Some compositions cancel out: a soft shrinkage of a softmax is zero. Few do.
    assert len(refused) <= len(tasks) // 10, refused
    assert all("Error" not in one["problem"] for one in refused), refused


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return torch.rand_like(x)", "not deterministic"),
        ("return x * 0 + 1", "does not depend on input 0"),
        ("return x / 0", "not finite"),
        ("return [x]", "expected a tensor, got list"),
        ("return x.nothing", "AttributeError"),
        ("return self.fc(x)", None),
    ],
)
def test_what_can_never_be_a_task_is_told(body, problem):
    from model_training.tasks.probe import probe

    text = TEXT.replace("return torch.softmax(y, dim=1) * 2.0", body)
    said = probe(text)["problem"]
    assert said is None if problem is None else problem in said


RENAMED = (
    TEXT.replace("self.fc", "self.project").replace("features", "channels").replace("64", "4096")
)
OTHER_LAYOUT = TEXT.replace(
    "        y = self.fc(x)  # the product\n        return torch.softmax(y, dim=1) * 2.0",
    "        return torch.softmax(self.fc(x), dim=1) * 3.0",
)
ALMOST = TEXT.replace("* 2.0", "* 2.0 + x")
ANOTHER = generate(0, "convolution").text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT, "the same program"),
        (RENAMED, "the same program"),
        (OTHER_LAYOUT, "the same operators"),
        (ALMOST, "runs of 13 tokens"),
        (ANOTHER, None),
    ],
)
def test_a_task_that_is_evaluated_is_recognized_in_other_clothes(text, reason):
    found = hits([a_task(text, "training")], [a_task(), a_task(ANOTHER + "\nX = 1\n", "other")][:1])
    if reason is None:
        assert found == []
    else:
        (hit,) = found
        assert (hit.training, hit.evaluation) == ("training", "one")
        assert reason in hit.reason


def test_a_run_with_a_hit_fails_and_names_it():
    with pytest.raises(ConfigError, match=r"1 of 2: mine is one: the same program"):
        refuse_contamination([a_task(ANOTHER), a_task(RENAMED, "mine")], [a_task()])


def test_the_estimate_of_likeness_is_near_the_truth():
    from model_training.tasks.fingerprint import shingles

    one, other = generate(1, "mlp").text, generate(1, "loss").text
    truth = len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))
    assert jaccard(fingerprints(one), fingerprints(other)) == pytest.approx(truth, abs=0.2)
    assert jaccard(fingerprints(one), fingerprints(one)) == 1.0


def test_families_that_are_held_out_are_not_trained_on():
    config = TasksConfig(num_training=60, num_evaluated=9, scale=TINY)
    found = split(config, [], fine)
    assert {task.family for task in found.evaluation} == set(config.held_out)
    assert not {task.family for task in found.training} & set(config.held_out)
    assert (len(found.training), len(found.evaluation)) == (60, 9)
    more = split(msgspec.structs.replace(config, num_training=80), [], fine)
    assert more.evaluation == found.evaluation
    assert more.training[:60] == found.training


def test_what_cannot_be_a_task_is_made_up_for_by_others():
    def picky(tasks):
        return [{"problem": "no" if "softmax" in task.text else None} for task in tasks]

    found = split(TasksConfig(num_training=20, num_evaluated=6, scale=TINY), [], picky)
    assert (len(found.training), len(found.evaluation)) == (20, 6)
    assert not any("softmax" in task.text for task in (*found.training, *found.evaluation))


def test_a_task_of_kernelbench_is_never_trained_on_but_in_the_papers_split():
    config = TasksConfig(num_training=20, num_evaluated=3, scale=TINY)
    stolen = split(config, [], fine).training[4]
    found = split(config, [stolen], fine)
    assert stolen not in found.training
    assert stolen in found.evaluation
    paper = split(msgspec.structs.replace(config, split="paper"), [stolen], fine)
    assert paper.training == paper.evaluation == (stolen,)
    with pytest.raises(ConfigError, match="none of it was given"):
        split(msgspec.structs.replace(config, split="paper"), [], fine)


def test_evaluation_may_be_of_kernelbench_alone_and_is_never_of_nothing():
    alone = TasksConfig(num_training=2, num_evaluated=0, scale=TINY)
    given = split(TasksConfig(num_training=2, num_evaluated=1, scale=TINY), [], fine).evaluation
    assert split(alone, given, fine).evaluation == given
    with pytest.raises(ConfigError, match=r"num-evaluated: expected 1 or more, or a checkout"):
        split(alone, [], fine)


def test_a_family_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"expected families .*, got 'nothing'"):
        TasksConfig(held_out=("nothing",))


def test_tasks_of_kernelbench_are_read_by_number(tmp_path):
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in ("10_b.py", "9_a.py"):
        (folder / name).write_text(TEXT)
    assert [task.name for task in kernelbench(tmp_path, levels=(1,))] == ["level1/9", "level1/10"]
    with pytest.raises(ConfigError, match="is it a checkout"):
        kernelbench(tmp_path / "nowhere")


def test_a_task_is_what_the_judge_takes():
    problem = generate(3, "loss").problem
    (workload,) = problem.workloads
    assert (workload.call, workload.init) == (
        Made(function="get_inputs"),
        Made(function="get_init_inputs"),
    )
    assert problem.reference.entry == "Model"
    without = TEXT.partition("def get_init_inputs")[0]
    assert a_task(without).problem.workloads[0].init == Call()
