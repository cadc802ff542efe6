"""`explain`: a call that is recorded beyond the wall, of a task and of a checkout."""

from __future__ import annotations

import json

import pytest

from cudal1_ci.records.recording import Recording
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.verify import text_problem
from tests.integration.conftest import run

pytestmark = pytest.mark.starts_verifier

TASK = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return torch.sigmoid(self.fc(x)) * x


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return [8]
"""
MODULE = TASK.partition("\n\ndef get_inputs")[0].replace("class Model", "class Gate")
SETTINGS = """\
[[tool.cudal1-ci.workload]]
target = "pkg/gate.py:Gate"
init = ["dim=8"]
inputs = ["float32[4, 8]"]
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "task.py"
    path.write_text(TASK)
    return path


def test_a_session_records_a_call_beyond_the_wall(task):
    problem = text_problem(task, "infer")
    with Session(TrialConfig(), device="cpu") as session:
        found = session.record(problem, problem.workloads[0])
        broken = text_problem(task, "infer")
        task.write_text(TASK.replace("self.fc(x)", "self.fc(x[:, 1:])"))
        broken = text_problem(task, "infer")
        said = session.record(broken, broken.workloads[0])
        again = session.record(problem, problem.workloads[0])
    assert isinstance(found, Recording)
    assert [one.name for one in found.operations] == ["linear", "sigmoid", "mul"]
    assert [one.span.line for one in found.operations if one.span] == [10, 10, 10]
    assert {found.frames[one.frame or 0].file for one in found.operations} == {""}
    assert [v.path for v in found.values if v.origin == "parameter"] == ["fc.weight", "fc.bias"]
    assert found.total_us > 0
    assert isinstance(said, str) and "shapes cannot be multiplied" in said
    assert isinstance(again, Recording)  # one that fails leaves the session as it was
    assert [one.span for one in again.operations] == [one.span for one in found.operations]


def test_a_task_is_explained(task):
    ran = run("explain", task, "--device", "cpu")
    assert ran.code == 0, ran.stderr
    assert "in 3 operations" in ran.stdout
    for code in ("self.fc(x)", "torch.sigmoid(self.fc(x))", "torch.sigmoid(self.fc(x)) * x"):
        assert code in ran.stdout
    assert "recorded: " in ran.stdout and "kernels: " in ran.stdout
    ran = run("explain", task, "--device", "cpu", "--json", "-")
    said = json.loads(ran.stdout)
    assert said["target"]["first_line"] == 4
    assert said["understanding"]["num_operations"] == 3
    assert {one["line"] for one in said["understanding"]["operations"]} == {10}
    assert set(said["proposals"]) >= {"recorded", "kernels"}


def test_a_target_of_a_checkout_is_explained_and_what_is_none_is_named(checkout):
    root = checkout({"pkg/__init__.py": "", "pkg/gate.py": MODULE, "pyproject.toml": SETTINGS})
    ran = run("explain", "pkg/gate.py:Gate", "--device", "cpu", "--json", "-", cwd=root)
    assert ran.code == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["target"]["path"], said["target"]["qualname"]) == ("pkg/gate.py", "Gate")
    operations = said["understanding"]["operations"]
    assert {(one["path"], one["line"]) for one in operations} == {("pkg/gate.py", 10)}
    for words, code, message in (
        (["pkg/gate.py:Gat"], 2, "no target `Gat`; did you mean `Gate`?"),
        (["pkg/none.py"], 2, "no such file or folder"),
        (["pkg/gate.py:Gate", "--workload", "w"], 2, "expected one of"),
    ):
        ran = run("explain", *words, "--device", "cpu", cwd=root)
        assert (ran.code, message in ran.stderr) == (code, True), ran.stderr


def test_what_generated_code_computes_is_shown_at_its_caller(checkout):
    """`exec`, `eval`, dataclasses and torch.fx make code of no file, by names such as <string>."""
    text = """\
        import torch

        space = {"torch": torch}
        exec("def gate(x, w):\\n    return torch.sigmoid(x @ w) * x", space)


        class Gate(torch.nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.w = torch.nn.Parameter(torch.rand(dim, dim))

            def forward(self, x):
                return space["gate"](x, self.w) + eval("x * 3")
        """
    root = checkout({"pkg/__init__.py": "", "pkg/gate.py": text, "pyproject.toml": SETTINGS})
    ran = run("explain", "pkg/gate.py:Gate", "--device", "cpu", "--json", "-", cwd=root)
    assert ran.code == 0, ran.stderr
    found = json.loads(ran.stdout)["understanding"]["operations"]
    assert {one["line"] for one in found} == {13}
    assert {one["path"] for one in found} == {"pkg/gate.py"}
    assert all('space["gate"](x, self.w)' in one["code"] or "eval(" in one["code"] for one in found)


def test_a_call_that_fails_is_said_with_its_own_exit_code(task):
    task.write_text(TASK.replace("self.fc(x)", "self.fc(x[:, 1:])"))
    ran = run("explain", task, "--device", "cpu")
    assert ran.code == 4
    assert "not recorded: " in ran.stdout and "shapes cannot be multiplied" in ran.stdout
