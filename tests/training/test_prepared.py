"""The tasks of a run are made once, and are probed in a process of their own."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from model_training.tasks import prepared as module
from model_training.tasks.prepared import TaskSourceConfig, prepared, probed
from model_training.tasks.record import Task
from model_training.tasks.splits import TasksConfig
from model_training.toy import tasks
from tests.training.tiny import TINY

CONFIG = TaskSourceConfig(
    generated=TasksConfig(num_training=4, num_evaluated=3, scale=TINY), probe_device="cpu"
)
REFERENCE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x {number}

def get_inputs():
    return [torch.rand(4)]
"""


def test_tasks_of_a_run_are_made_once(tmp_path):
    found = prepared(CONFIG, tmp_path)
    assert (len(found.training), len(found.evaluation)) == (4, 3)
    assert {one.family for one in found.evaluation} <= {"diagonal", "distance", "softmax"}
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"training.jsonl", "evaluation.jsonl"}
    more = msgspec.structs.replace(CONFIG, probe_device="cuda:9")
    assert prepared(more, tmp_path) == found, "not probed again"


def test_a_subset_of_kernelbench_is_evaluated_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "probed", lambda tasks, _: [{"problem": None}] * len(tasks))
    folder = tmp_path / "bench" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    texts = {1: "* 1.0", 2: "* 2.0 + x.sum()", 3: "- x.mean(0, keepdim=True)"}
    for number, words in texts.items():
        (folder / f"{number}_task.py").write_text(REFERENCE.format(number=words))
    config = msgspec.structs.replace(
        CONFIG, kernelbench=str(tmp_path / "bench"), levels=(1,), names=("level1/2",)
    )
    found = prepared(config, tmp_path / "tasks")
    assert [one.name for one in found.evaluation if one.source == "kernelbench"] == ["level1/2"]
    other = msgspec.structs.replace(config, names=("level1/9",))
    with pytest.raises(ConfigError, match=r"tasks\.names: .* no task 'level1/9'"):
        prepared(other, tmp_path / "other")


def test_the_toy_has_tasks_of_its_own(tmp_path):
    found = prepared(TaskSourceConfig(kind="toy"), tmp_path)
    assert list(found.training) == list(found.evaluation) == tasks()
    assert prepared(TaskSourceConfig(kind="toy"), tmp_path) == found


def test_a_probe_that_fails_says_where():
    task = Task(source="generated", name="t", family="f", text="x")
    (said,) = probed([task], "cpu")
    assert "NameError" in said["problem"]
    with pytest.raises(ConfigError, match=r"tasks\.probe-device: none of 8 tasks .* 'nonsense'"):
        probed([task] * 8, "nonsense")
