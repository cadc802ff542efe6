"""What is left out where a reference is slow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.verifier import reference
from cudal1_ci.sandboxed.verifier import verifier as module
from cudal1_ci.sandboxed.verifier.cases import Limits
from cudal1_ci.sandboxed.verifier.reference import (
    FEWEST_TRIALS,
    OUTPUTS_SHARE,
    SLOW_S,
    learn_answers,
)
from cudal1_ci.sandboxed.verifier.verifier import SPARE_S, Verifier
from tests.unit.sandboxed.messages import called


@pytest.fixture
def clock():
    """That of a template, which stands still while its runners are stopped."""
    clock = SimpleNamespace(now_s=0.0, awake_s=lambda: clock.now_s)
    return clock


@pytest.mark.parametrize(
    ("seconds", "modes", "taken_up"),
    [
        (SPARE_S - 1, ("infer", "infer", "infer"), (0, 1)),
        (SPARE_S + 1, ("infer", "infer", "infer"), (0,)),
        (SPARE_S + 1, ("train", "train", "infer"), (0, 2)),
        (SPARE_S + 1, ("infer", "train", "infer"), (0, 1)),
    ],
)
def test_of_a_slow_reference_one_workload_of_each_mode_is_taken_up(
    clock, monkeypatch, seconds, modes, taken_up
):
    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        clock.now_s += seconds
        return SimpleNamespace(name=workload.name, findings=[])

    monkeypatch.setattr(module, "make_case", make_case)
    judge = Verifier(1, SimpleNamespace(kind="cpu"), clock)
    workloads = [SimpleNamespace(name=str(one), mode=mode) for one, mode in enumerate(modes)]
    judge.limits = Limits(1.0, 1.0)
    findings = judge.learn(SimpleNamespace(workloads=workloads), 0)
    num_left_out = len(modes) - len(taken_up)
    assert [one.rule for one in findings] == ["workload.left_out"] * num_left_out
    assert set(judge.cases) == {str(one) for one in taken_up}


@pytest.mark.parametrize(
    ("seconds", "share", "num_trials"),
    [
        (SLOW_S - 1, 8, 8),
        (SLOW_S + 1, 8, FEWEST_TRIALS),
        (SLOW_S - 1, 5, 5),
        (SLOW_S - 1, 1, FEWEST_TRIALS),
    ],
)
def test_fewer_trials_are_made_of_a_reference_that_is_slow_or_returns_much(
    clock, monkeypatch, seconds, share, num_trials
):
    """Of an output so large that `share` of them are what there is memory for."""
    output = torch.zeros(1000)
    memory_bytes = OUTPUTS_SHARE * share * output.nbytes
    inputs = SimpleNamespace(num_bytes=8, tensors=())

    class Said(SimpleNamespace):
        def first(self, count):
            return Said(outputs=self.outputs[:count], calls=self.calls[:count])

    def answer_of(case, template, limits):
        clock.now_s += seconds
        count = len(case.trials)
        return Said(outputs=[[output]] * count, calls=[called()] * count)

    case = SimpleNamespace(
        program={},
        source=SimpleNamespace(grads=[], moves=[True], made=[], specs=[]),
        train=False,
        accelerator=SimpleNamespace(memory_bytes=lambda: memory_bytes, device="cpu"),
        kept=lambda one: one,
        put=torch.clone,
        findings=[],
        state=[],
        state_slots=[],
        bounds={},
        remembers=False,
        cast=None,
    )
    monkeypatch.setattr(reference, "variations", lambda *_: [("drawn", inputs)] * 8)
    monkeypatch.setattr(reference, "answer_of", answer_of)
    monkeypatch.setattr(reference, "twice", lambda work: Said(outputs=[[]] * 8, calls=[]))
    monkeypatch.setattr(reference, "where_apart", lambda *_: [])
    monkeypatch.setattr(reference, "check_dependence", lambda *_: None)
    learn_answers(case, clock, Limits(1.0, 1.0), None)
    assert len(case.trials) == len(case.expected.outputs) == num_trials
    assert all(torch.equal(one, output) for some in case.expected.outputs for one in some)
    assert [one.rule for one in case.findings] == ["trials.few"] * (num_trials < 8)
    assert case.source.moves == [False], "what was not tried is not done in timed rounds"
