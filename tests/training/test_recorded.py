"""What is the reference as a CUDA graph and nothing else, and what is more."""

from __future__ import annotations

import re

import pytest

from cudal1_ci.records import TextProgram, TreeProgram
from model_training.recorded import is_recording
from model_training.tasks.generate import generate
from model_training.tasks.record import Task
from model_training.variants import variants_of
from model_training.variants.whole import graphed
from model_training.variants.written import subject_of

TASKS = [generate(seed, family) for seed in (0, 1) for family in ("diagonal", "softmax", "mlp")]


def program(text: str, entry: str = "ModelNew") -> TextProgram:
    return TextProgram(source=text, entry=entry)


def recorded(task: Task) -> str:
    subject = subject_of(task.text)
    assert subject is not None
    return graphed(subject, ()).text


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_in_a_graph_is_a_recording_by_whatever_names(task):
    text = recorded(task)
    assert is_recording(task.problem, program(text))
    renamed = text.replace("compute", "calculate").replace("side", "stream_of_it")
    assert is_recording(task.problem, program(renamed))
    local = re.sub(r"\bx\b", "rows_of_it", text)
    assert is_recording(task.problem, program(local))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_rewrites_are_none_in_a_graph_or_without(task):
    others = [one.text for one in variants_of(task) if one.text != recorded(task)]
    assert len(others) > 2
    assert not any(is_recording(task.problem, program(text)) for text in others)


def test_the_reference_itself_and_what_cannot_be_read_are_none():
    task = TASKS[0]
    assert not is_recording(task.problem, task.problem.reference)
    assert not is_recording(task.problem, program("class ModelNew(\n  CUDAGraph"))
    assert not is_recording(task.problem, program("torch.cuda.CUDAGraph()"))
    tree = TreeProgram(root="/", import_root=".", import_path="a:ModelNew", digest="0")
    assert not is_recording(task.problem, tree)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.graph = None", "self.graph = None\n        self.half = torch.ones(3)"),
        ("class ModelNew", "def helper(x):\n    return x\n\n\nclass ModelNew"),
    ],
)
def test_who_makes_something_else_too_has_not_recorded_alone(old, new):
    task = TASKS[0]
    text = recorded(task)
    assert text.count(old) == 1
    assert not is_recording(task.problem, program(text.replace(old, new)))


def test_a_method_of_the_reference_that_became_another_is_more_than_a_recording():
    body = "    def twice(self, x):\n        return x + x\n\n    def forward"
    task = Task(
        source="generated",
        name="diagonal-0",
        family="diagonal",
        text=TASKS[0].text.replace("    def forward", body),
    )
    text = recorded(TASKS[0])
    assert not is_recording(task.problem, program(text)), "it has no `twice`"
    same = text.replace("    def forward", body)
    assert is_recording(task.problem, program(same))
    assert not is_recording(task.problem, program(same.replace("x + x", "2 * x")))
