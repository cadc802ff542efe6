"""How many processes learning a reference takes, and which of them serve candidates afterwards."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cudal1_ci.sandboxed.memory.accelerators import accelerator
from cudal1_ci.sandboxed.timing import reuse_runners as kept_module
from cudal1_ci.sandboxed.timing.reuse_runners import Kept
from cudal1_ci.sandboxed.verifier.cases import Limits, Rejected
from cudal1_ci.sandboxed.verifier.reference import make_case
from cudal1_ci.verification.crossing import problem_on_wire
from tests.unit.verification.test_session import problem_of, tensor

LIMITS = Limits(60.0, 30.0)
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        {check}
        return self.fc(x)
"""
PLAIN = MODEL.format(check="pass")
PICKY = MODEL.format(check="assert x.abs().max() < 100, 'too large'")
ROWS = MODEL.format(check="assert x.shape[0] == 16, 'other rows'")
RANDOM = MODEL.format(check="return self.fc(x) + __import__('time').monotonic() % 1")


@pytest.fixture
def forks(template, monkeypatch):
    """Processes that were started, by the folder of each."""
    started, own = [], template.fork

    def fork(scratch: Path, *args):
        started.append(scratch)
        return own(scratch, *args)

    monkeypatch.setattr(template, "fork", fork)
    return started


def learn(template, text: str, hold=None):
    problem = problem_on_wire(problem_of(text, tensor(16, 8)))
    (workload,) = problem.workloads
    return make_case(template, accelerator("cpu"), problem, workload, LIMITS, 0, hold=hold)


def take(kept, case):
    programs = dict.fromkeys(("reference", "control"), case.program)
    return kept.take(case, programs, LIMITS, 1, random.Random(0)).runners


def kept_runners(kept, case):
    ((known, crew),) = kept.references.values()
    assert known is case
    return crew.runners


def test_a_reference_is_learned_from_two_processes_and_one_in_float64(template, forks):
    case = learn(template, PLAIN)
    assert len(forks) == 3
    assert case.oracle is not None and case.other_state is not None and case.fewer_rows is not None


def test_both_serve_candidates_with_the_state_that_is_expected(template, forks):
    kept = Kept(template)
    case = learn(template, PLAIN, kept.keep)
    forks.clear()
    for runner in take(kept, case).values():
        answer = case.answer(runner, LIMITS)
        assert runner.is_trusted
        assert all(
            (one == other).all()
            for ours, theirs in zip(answer.outputs, case.expected.outputs, strict=True)
            for one, other in zip(ours, theirs, strict=True)
        )
    assert forks == []
    kept.close()
    assert not any(one.exists() for one in template.scratch.glob("r*"))


@pytest.mark.parametrize(("text", "left"), [(PICKY, "control"), (ROWS, "reference")])
def test_one_of_which_a_call_has_failed_does_not_serve(template, forks, text, left):
    kept = Kept(template)
    case = learn(template, text, kept.keep)
    assert list(kept_runners(kept, case)) == [
        {"control": "reference", "reference": "control"}[left]
    ]
    forks.clear()
    assert set(take(kept, case)) == {"reference", "control"}
    assert len(forks) == 1
    kept.close()


@pytest.mark.parametrize("share", [16, 2**40])
def test_one_that_holds_much_memory_lets_it_go_and_serves(template, forks, monkeypatch, share):
    monkeypatch.setattr(kept_module, "KEPT_SHARE", share)
    kept = Kept(template)
    case = learn(template, PLAIN, kept.keep)
    forks.clear()
    for runner in kept_runners(kept, case).values():
        assert ("outputs" in runner.segments) is (share == 16)
    for runner in take(kept, case).values():
        assert case.answer(runner, LIMITS).outputs[0][0].equal(case.expected.outputs[0][0])
    assert forks == []
    kept.close()


def test_what_is_refused_leaves_no_process_that_nobody_ends(template):
    kept = Kept(template)
    with pytest.raises(Rejected, match="differ by"):
        learn(template, RANDOM, kept.keep)
    kept.close()
    assert not list(template.scratch.glob("r*"))
