"""Modules that are constructed for one use, with weights that are loaded afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from cudal1_ci.sandboxed.runner.autocast import Autocast
from cudal1_ci.sandboxed.runner.contract.trial import Trial
from cudal1_ci.sandboxed.wire.arguments import Call


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("steps", torch.arange(3))


class KeepsTensor(Plain):
    def __init__(self):
        super().__init__()
        self.table = torch.arange(3.0)


class UsesNumpy(Plain):
    def __init__(self):
        super().__init__()
        self.sizes = torch.ones(3).numpy().tolist()


def constructed(kind, device):
    """Return what a trial on a device constructs by itself, of a program that is there already."""
    subject = SimpleNamespace(
        device=torch.device(device),
        segments={},
        program=None,
        module=kind(),
        train=False,
        autocast=Autocast(device, None),
    )
    return Trial(subject, (), Call()).on_the_device(kind, [], {})


def test_weights_that_are_loaded_later_are_drawn_on_the_device():
    module = constructed(Plain, "meta")
    assert {one.device.type for one in module.state_dict().values()} == {"meta"}


@pytest.mark.parametrize("kind", [KeepsTensor, UsesNumpy])
def test_what_would_be_another_module_there_is_constructed_as_usual(kind):
    assert constructed(kind, "meta") is None


def test_on_a_cpu_nothing_is_gained():
    assert constructed(Plain, "cpu") is None
