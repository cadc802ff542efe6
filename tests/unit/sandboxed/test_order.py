"""A call between other work of the caller's stream, as far as a CPU has such a thing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.runner.runner import Trials
from cudal1_ci.sandboxed.runner.subject import Subject
from cudal1_ci.sandboxed.verifier import stream_order
from cudal1_ci.sandboxed.verifier import verifier as judge_module
from cudal1_ci.sandboxed.verifier.cases import OtherState, Rejected
from cudal1_ci.sandboxed.verifier.compare import Difference
from cudal1_ci.sandboxed.verifier.inputs import InputSet
from cudal1_ci.sandboxed.verifier.verifier import Verifier
from cudal1_ci.sandboxed.wire.runner import CallSets

SET = InputSet([torch.ones(4)])


@pytest.fixture
def subject(tmp_path):
    found = Subject(tmp_path)
    x = torch.arange(4.0)
    found.inputs = {0: [x, torch.ones(1).expand(4)]}
    found.calls = {0: (found.inputs[0], {})}
    found.program = lambda x, ones: x * 2 + ones
    return found


def test_inputs_are_written_late_and_are_no_numbers_before(subject, monkeypatch):
    seen = []
    monkeypatch.setattr(subject, "synchronize", lambda: seen.append(subject.inputs[0][0].clone()))
    reply = Trials(subject).batch(CallSets(sets=(0,), seeds=(1,), is_between=True))
    assert seen[0].isnan().all()
    assert subject.inputs[0][0].tolist() == [0, 1, 2, 3]
    assert subject.kept[0][0].tolist() == [1, 3, 5, 7]
    assert reply.calls[0].num_leaves == 1


def test_outputs_are_copied_at_once(subject):
    shared = torch.zeros(4)
    subject.program = lambda x, ones: shared
    Trials(subject).batch(CallSets(sets=(0,), seeds=(1,), is_between=True))
    shared.fill_(7)
    assert subject.kept[0][0].tolist() == [0] * 4


def test_memory_of_earlier_outputs_is_no_number_either(subject, monkeypatch):
    made = []
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda *a, **k: made.append(a) or full(*a, **k))
    trials = Trials(subject)
    trials.batch(CallSets(sets=(0,), seeds=(1,)))
    trials.batch(CallSets(sets=(0,), seeds=(1,), is_between=True))
    ((shape, value),) = made
    assert shape == (4,) and math.isnan(value)


class Runner:
    """`off` is a call between other work by so much, `unsteady` each from the one before."""

    def __init__(self, off, unsteady=0.0):
        self.off, self.unsteady, self.num_calls = off, unsteady, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def case_of(kind="cuda", reference_off=0.0, state=(), after=(), train=False, memory_bytes=2**30):
    def answer(runner, limits, sets, is_between=False):
        runner.num_calls += 1
        shift = is_between * runner.off + runner.num_calls * runner.unsteady
        return SimpleNamespace(outputs=[[sets[0].tensors[0] + shift]])

    def difference(one, other):
        gap = float((one - other).abs().max())
        return Difference(excess=gap / 0.1, max_abs=gap, max_rel=gap, num_far=1, where="")

    return SimpleNamespace(
        accelerator=SimpleNamespace(
            kind=kind, device=torch.device("cpu"), memory_bytes=lambda: memory_bytes
        ),
        expected=SimpleNamespace(state=list(after), outputs=[[torch.ones(4)]]),
        state=list(state),
        train=train,
        trials=[("drawn 0", SET)],
        program={},
        answer=answer,
        differences=lambda ours, theirs: list(map(difference, ours, theirs)),
        runner=lambda *_, **__: Runner(reference_off),
    )


def compare(case, off, unsteady=0.0):
    return stream_order.compare_order(case, None, Runner(off, unsteady), None)


def test_a_call_that_keeps_its_place_is_right():
    assert compare(case_of(), 0.05) == []


def test_a_call_that_does_not_is_refused():
    with pytest.raises(Rejected) as refused:
        compare(case_of(), 1.0)
    assert (refused.value.status, refused.value.finding.rule) == (
        "incorrect_values",
        "values.unordered",
    )


def test_one_that_is_another_in_each_call_is_not_refused_for_its_place():
    assert compare(case_of(), 1.0, unsteady=1.0) == []


def test_where_the_reference_does_not_either_it_is_told():
    (finding,) = compare(case_of(reference_off=1.0), 1.0)
    assert finding.rule == "reference.unordered"


def test_inputs_of_the_calls_lie_where_they_are_compared_though_those_of_the_trials_may_not():
    case, asked = case_of(), []

    def answer(runner, limits, sets, is_between=False):
        asked.extend(tensor.device.type for one in sets for tensor in one.tensors)
        return SimpleNamespace(outputs=[[SET.tensors[0]]])

    case.answer, case.accelerator.device = answer, torch.device("meta")
    assert compare(case, 0.0) == []
    assert asked == ["meta"] * 2


@pytest.mark.parametrize(
    "known",
    [
        {"kind": "cpu"},
        {"train": True},
        {"memory_bytes": 100},
        {"state": [torch.zeros(1)], "after": [torch.ones(1)]},
    ],
)
def test_where_a_second_call_may_differ_or_does_not_fit_nothing_is_compared(known):
    assert compare(case_of(**known), 1.0) == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [("values.mismatch", "state.keys"), (stream_order.UNORDERED, stream_order.UNORDERED)],
)
def test_with_weights_drawn_anew_the_place_of_a_call_still_counts(monkeypatch, rule, told):
    reasons = iter(
        [
            OtherState("other keys", ()),
            Rejected("incorrect_values", rule, "why"),
        ]
    )

    def examine(*_, **__):
        raise next(reasons)

    monkeypatch.setattr(judge_module, "examine", examine)
    judge = Verifier(1, SimpleNamespace(kind="cuda"), SimpleNamespace())
    judge.weights, judge.drawn, judge.limits = "seed", {("w", None): SimpleNamespace()}, None
    with pytest.raises(Rejected) as refused:
        judge.examine_one(SimpleNamespace(name="w", train=False), {}, None, profiles=False)
    assert refused.value.finding.rule == told
