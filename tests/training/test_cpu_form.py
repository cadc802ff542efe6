"""What of a program a CPU may try."""

from __future__ import annotations

import ast
import os

import pytest

from cudal1_ci.records import Candidate, TextProgram
from cudal1_ci.records.archive import Archive
from cudal1_ci.verification import Session, TrialConfig
from model_training.cpu_form import cpu_form
from model_training.rehearsal import Rehearsal
from model_training.tasks.draft import TINY
from model_training.tasks.generate import generate
from model_training.variants import HandMade

TASKS = [
    generate(seed, family, TINY) for seed in range(3) for family in ("pooling", "indexing", "loss")
]
GRAPHS = [
    one.program.source
    for task in TASKS
    for one in HandMade(("graph",)).propose(task.problem, (), 8)
    if one.proposer == "hand-made:graph"
]


def form(source: str) -> str | None:
    found = cpu_form(TextProgram(source=source, entry="ModelNew"))
    return None if found is None else found.source


def test_of_a_graph_as_the_examples_record_it_what_is_recorded_is_tried():
    assert len(GRAPHS) > len(TASKS)
    for source in GRAPHS:
        tried = form(source)
        assert "cuda" not in tried
        before, after = (methods(text) for text in (source, tried))
        assert after.keys() == before.keys() - {"record"}
        assert {name for name in after if after[name] != before[name]} == {"forward"}
        (call,) = after["forward"].body
        assert ast.unparse(call).startswith("return self.compute(")


def methods(source: str):
    (module,) = [
        one
        for one in ast.parse(source).body
        if isinstance(one, ast.ClassDef) and one.name == "ModelNew"
    ]
    found = {one.name: one for one in module.body if isinstance(one, ast.FunctionDef)}
    return {name: Same(one) for name, one in found.items()}


class Same:
    """A method, equal to another with the same statements."""

    def __init__(self, method):
        self.body, self.text = method.body, ast.unparse(method)

    def __eq__(self, other):
        return self.text == other.text


PLAIN = "class ModelNew:\n    def forward(self, x):\n        return x\n"


def test_a_plain_program_is_tried_as_it_is_and_one_that_cannot_be_read_too():
    assert form(PLAIN) == PLAIN
    broken = GRAPHS[0] + "\n)"
    assert form(broken) == broken
    other = TextProgram(source=GRAPHS[0].replace("ModelNew", "Other"), entry="ModelNew")
    assert cpu_form(other) is None


COMPUTE = "def compute(self, "


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.graph.replay()", "self.graph.replay(); self.graph.replay()"),
        ("kept.copy_(given)", "kept.copy_(given.relu())"),
        ("return self.out.clone()", "return self.out"),
        ("side = torch.cuda.Stream()", "side = torch.cuda.current_stream()"),
        ("self.out = self.compute(*self.inputs)", "self.out = self.compute(*self.inputs) + 1"),
        ("import torch\n", "import torch\ntorch.backends.cudnn.benchmark = True\n"),
        (COMPUTE, f"def more(self):\n        return self.inputs\n\n    {COMPUTE}"),
        (COMPUTE, f"def more(self):\n        return self.graph\n\n    {COMPUTE}"),
        (COMPUTE, f"def more(self, x):\n        self.record(x)\n\n    {COMPUTE}"),
        (COMPUTE, f"def more(self):\n        return vars(self)\n\n    {COMPUTE}"),
        (COMPUTE, f"def record(self, x):\n        return x\n\n    {COMPUTE}"),
        (COMPUTE, "def computed(self, "),
    ],
)
def test_a_graph_that_is_another_one_is_left_to_the_gpu(old, new):
    source = GRAPHS[0]
    assert old in source
    assert form(source) is not None
    assert form(source.replace(old, new, 1)) is None


@pytest.mark.starts_verifier
def test_a_graph_whose_work_raises_is_settled_on_a_cpu(device, tmp_path):
    """By the product's judge; one that is right goes on to the GPU."""
    if device != "cpu":
        pytest.skip("a rehearsal is of a CPU")
    task, source = TASKS[0], GRAPHS[0]
    body = source.index("\n", source.index(COMPUTE)) + 1
    wrong = source[:body] + "        undefined_name\n" + source[body:]
    config = TrialConfig(call_s=10.0, load_s=60.0)
    candidates = [
        Candidate(
            problem_id=task.problem.id,
            program=TextProgram(source=text, entry="ModelNew"),
            proposer="policy",
        )
        for text in (source, wrong)
    ]
    with (
        Archive.open(tmp_path / "archive.sqlite") as archive,
        Session(config, device="cpu", cores=sorted(os.sched_getaffinity(0))) as judge,
    ):
        found = Rehearsal([judge], archive, config).settled(judge, task.problem, candidates)
    assert list(found) == [candidates[1].id]
    evaluation = found[candidates[1].id].evaluation
    assert evaluation.candidate == candidates[1]
    assert "undefined_name" in evaluation.verdict.findings[0].message
