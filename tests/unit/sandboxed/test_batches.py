"""What a timed call may hand over: what the same program's first call returned the form of."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.memory.segment import Segment, slot_of
from cudal1_ci.sandboxed.runner.batches import Batches
from cudal1_ci.sandboxed.wire.tensors import OutputSlot


class Other(torch.Tensor):
    pass


@pytest.fixture(params=[False, True], ids=["late", "early"])
def batches(request):
    """One call of one output, of two float32 on the CPU."""
    segment = Segment.create(4096)
    subject = SimpleNamespace(
        train=False,
        synchronize=lambda: None,
        segments={"outputs": segment},
        device=torch.device("cpu"),
        inputs={},
        module=None,
    )
    made = Batches(subject)
    slot = OutputSlot(**vars(slot_of(torch.ones(2))), device="cpu", own_stride=(1,))
    made.lay_out(
        [[slot]],
        step_bytes=64,
        num_regions=2,
        seeded=False,
        gathers_early=request.param,
        bounded=(),
    )
    made.arrange([0])
    return made


@pytest.mark.parametrize("region", [0, 1])
def test_outputs_go_where_they_are_wanted(batches, region):
    batches.timed = [torch.tensor([1.5, 2.5])]
    batches.deliver(region)
    (wanted,), (other,) = batches.regions[region], batches.regions[1 - region]
    assert wanted.tolist() == [1.5, 2.5]
    assert other.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (torch.ones(3), ValueError, r"shape \[3\] on cpu, expected \[2\]"),
        (torch.ones(2, device="meta"), ValueError, r"on meta, expected \[2\] on cpu"),
        (torch.ones(2).as_subclass(Other), TypeError, "a Other"),
        ((torch.ones(2), torch.ones(2)), ValueError, "zip"),
    ],
)
def test_what_has_another_form_is_refused(batches, output, error, words):
    batches.timed = [output]
    with pytest.raises(error, match=words):
        batches.deliver(0)
    assert batches.regions[0][0].tolist() == [0.0, 0.0]


def test_what_requires_a_gradient_is_copied_without_one(batches):
    batches.timed = [torch.nn.Parameter(torch.tensor([1.5, 2.5])) * 2]
    batches.deliver(0)
    (wanted,) = batches.regions[0]
    assert (wanted.tolist(), wanted.requires_grad) == ([3.0, 5.0], False)


def test_a_runner_waits_awake_for_what_is_timed_and_not_between(batches):
    batches.stand_by(0.1)
    assert batches.spin_s == 0.1
    batches.settle()
    assert batches.spin_s == 0.0


def test_what_the_first_batches_leave_is_looked_at_no_more_and_later_garbage_is_collected(batches):
    class Node:
        def __init__(self):
            self.me = self

    try:
        for _ in range(2):
            batches.settle()
        num_frozen = gc.get_freeze_count()
        assert num_frozen > len(gc.get_objects())
        garbage = weakref.ref(Node())
        batches.settle()
        assert garbage() is None
        assert gc.get_freeze_count() <= num_frozen
    finally:
        gc.unfreeze()


def test_what_the_next_outputs_may_lie_in_is_no_number(batches, monkeypatch):
    """Whatever was there, infinities among it."""
    made = []

    def empty(*sizes, device):
        made.append(torch.tensor([0.0, float("inf")] * 8)[: sizes[0]].clone())
        return made[-1]

    monkeypatch.setattr(torch, "empty", empty)
    batches.poison()
    assert [len(one) for one in made] == [2]
    assert all(one.isnan().all() for one in made)


def test_a_call_ahead_of_a_batch_leaves_nothing_behind(batches):
    """No output, and no gradient that the next backward pass would add to."""
    weight = torch.nn.Parameter(torch.ones(2))
    module = torch.nn.ParameterList([weight])
    given, called = torch.ones(2, requires_grad=True), []

    def run(number):
        called.append((number, torch.is_grad_enabled()))
        output = given * weight
        output.sum().backward()
        return output

    vars(batches.subject).update(train=True, run=run, inputs={3: [given]}, module=module)
    batches.arrange([3, 0])
    batches.arrange([1, 2])
    batches.rehearse()
    assert called == [(3, True)], "on inputs of the batch before"
    assert given.grad is None and weight.grad is None
    assert batches.timed == [] and batches.gathered is None
