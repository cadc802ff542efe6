"""What ran in a call of a candidate is looked at in the process that examined it: a real judge."""

from __future__ import annotations

import pytest

from cudal1_ci.records import Made, Problem, TextProgram, Workload
from cudal1_ci.sandboxed.memory.accelerators import accelerator
from cudal1_ci.sandboxed.verifier.verifier import Verifier
from cudal1_ci.sandboxed.wire.verifier import Check, Limits
from cudal1_ci.verification.crossing import problem_on_wire, program_on_wire
from tests.templates import start_template

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 1

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return []
"""
WRONG_WHEN_PROFILED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if torch.autograd._profiler_enabled():
            raise RuntimeError("nobody shall look")
        return torch.tanh(x) + 1
"""


@pytest.fixture(scope="module")
def judge():
    judge = Verifier(1, accelerator("cpu"), start_template(None))
    workload = Workload(
        name="w",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    program = TextProgram(source=REFERENCE, entry="Model")
    request = Check(
        problem=problem_on_wire(Problem(reference=program, workloads=(workload,))),
        limits=Limits(60.0, 30.0),
        seed=0,
        memory_bytes=None,
        share_bytes=None,
        weights="checkpoint",
        precision="strict",
        store=None,
    )
    assert judge.check(request).verdict.status == "passed"
    yield judge
    judge.dismiss()
    judge.template.close()


def examined(judge, source: str, profiled: str | None, *, keeps: bool = False) -> None:
    program = program_on_wire(TextProgram(source=source, entry="Model"))
    assert judge.examine(program, profiled, keeps).verdict.status == "passed"


def test_no_further_process_is_started_for_it(judge, monkeypatch):
    examined(judge, REFERENCE, "w")
    monkeypatch.setattr(judge.template, "fork", None)
    assert "aten::tanh" in {row.name for row in judge.profile("w", is_candidate=True).rows}


def test_a_process_that_is_timed_is_looked_at_afterwards_and_not_timed_again(judge, monkeypatch):
    """On a GPU a profiler slows down all launches of a process that it has been in."""
    examined(judge, REFERENCE, None, keeps=True)
    assert judge.rows == {} and list(judge.kept.examined) == ["w"]
    runner = judge.kept.examined["w"].runners["candidate"]
    with monkeypatch.context() as patch:
        patch.setattr(judge.template, "fork", None)
        rows = judge.profile("w", is_candidate=True).rows
    assert "aten::tanh" in {row.name for row in rows}
    assert judge.kept.examined == {} and runner.ended
    again = judge.profile("w", is_candidate=True).rows
    assert "aten::tanh" in {row.name for row in again}, "by a process of its own"


def test_of_another_candidate_it_is_looked_at_anew(judge):
    examined(judge, REFERENCE, "w")
    examined(judge, REFERENCE.replace("torch.tanh(x)", "1 - 2 / (1 + (2 * x).exp())"), None)
    assert "aten::tanh" not in {row.name for row in judge.profile("w", is_candidate=True).rows}


def test_who_cannot_be_looked_at_is_right_all_the_same_and_the_reason_is_told(judge):
    for keeps in (False, True):
        examined(judge, WRONG_WHEN_PROFILED, None if keeps else "w", keeps=keeps)
        assert "nobody shall look" in judge.profile("w", is_candidate=True).why
    assert judge.kept.examined == {}
