"""Whom gradients reach, as a runner says it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudal1_ci.sandboxed.runner.gradients import reached
from cudal1_ci.sandboxed.wire.runner import Reached


class Chosen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(4, 3))
        self.unused = torch.nn.Parameter(torch.rand(3))
        self.frozen = torch.nn.Parameter(torch.rand(3), requires_grad=False)

    def forward(self, places, x):
        return {"sum": self.table[places] + x + self.frozen}


def subject(module, call):
    inputs = [torch.tensor([1, 2]), torch.rand(2, 3)]
    return SimpleNamespace(module=module, inputs={0: inputs}, run=lambda number: call(*inputs))


def test_inputs_are_counted_among_all_and_what_is_not_used_or_frozen_is_not_reached():
    module = Chosen()
    asked = subject(module, module)
    assert reached(asked, 0) == Reached(names=("input 1", "table"))
    assert not any(one.requires_grad for one in asked.inputs[0])
    assert module.table.grad is None


def test_of_what_depends_on_nothing_none_is_reached():
    assert reached(subject(None, lambda places, x: places + 1), 0) == Reached(names=())


def test_a_call_that_fails_leaves_the_inputs_as_they_were():
    asked = subject(None, lambda places, x: x.numpy())
    with pytest.raises(RuntimeError):
        reached(asked, 0)
    assert not asked.inputs[0][1].requires_grad
