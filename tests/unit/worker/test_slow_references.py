"""What is left out where a reference is slow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ci.worker import judge as module
from cudal1_ci.worker import reference
from cudal1_ci.worker.cases import Limits
from cudal1_ci.worker.judge import SPARE_S, Judge
from cudal1_ci.worker.reference import FEWEST_TRIALS, SLOW_S, learn_answers


@pytest.fixture
def clock():
    """That of a template, which stands still while its runners are stopped."""
    clock = SimpleNamespace(now_s=0.0, awake_s=lambda: clock.now_s)
    return clock


@pytest.mark.parametrize(("seconds", "is_left_out"), [(SPARE_S - 1, False), (SPARE_S + 1, True)])
def test_a_workload_is_left_out_where_others_are_slow(clock, monkeypatch, seconds, is_left_out):
    def make_case(template, accelerator, problem, workload, limits, seed, hold, precision):
        clock.now_s += seconds
        return SimpleNamespace(name=workload["name"], findings=[])

    monkeypatch.setattr(module, "make_case", make_case)
    judge = Judge(1, None, clock)
    judge.problem = {"workloads": [{"name": "first"}, {"name": "second"}]}
    judge.limits = Limits(1.0, 1.0)
    findings = judge.learn(0)
    assert [one["rule"] for one in findings] == ["workload.left_out"] * is_left_out
    assert set(judge.cases) == ({"first"} if is_left_out else {"first", "second"})


@pytest.mark.parametrize(("seconds", "num_trials"), [(SLOW_S - 1, 8), (SLOW_S + 1, FEWEST_TRIALS)])
def test_fewer_trials_are_made_of_a_slow_reference(clock, monkeypatch, seconds, num_trials):
    inputs = SimpleNamespace(num_bytes=8, tensors=())

    class Said(SimpleNamespace):
        def first(self, count):
            return Said(outputs=self.outputs[:count], calls=self.calls[:count])

    def answer_of(case, template, limits):
        clock.now_s += seconds
        return Said(outputs=[[]] * len(case.trials), calls=[{"slots": [1]}] * len(case.trials))

    case = SimpleNamespace(
        program={},
        source=SimpleNamespace(grads=[], moves=[True], made=[], specs=[]),
        train=False,
        accelerator=SimpleNamespace(memory_bytes=lambda: 10**9),
        kept=lambda one: one,
        findings=[],
        state=[],
        state_slots=[],
    )
    monkeypatch.setattr(reference, "variations", lambda *_: [("drawn", inputs)] * 8)
    monkeypatch.setattr(reference, "answer_of", answer_of)
    monkeypatch.setattr(reference, "twice", lambda work: Said(outputs=[[]] * 8, calls=[]))
    monkeypatch.setattr(reference, "check_determinism", lambda *_: None)
    monkeypatch.setattr(reference, "check_dependence", lambda *_: None)
    learn_answers(case, clock, Limits(1.0, 1.0), None)
    assert len(case.trials) == len(case.expected.outputs) == num_trials
    assert [one["rule"] for one in case.findings] == ["trials.few"] * (num_trials < 8)
    assert case.source.moves == [False], "what was not tried is not done in timed rounds"
