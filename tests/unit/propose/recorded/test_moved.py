"""Tensors that a constructor keeps on the CPU and every call copies become buffers."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.propose.recorded import moved
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording

TEXT = """\
import torch
from torch import nn


def positions(length, dim):
    return torch.arange(length * dim).reshape(length, dim).double() / 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.table = positions(
            length=3,
            dim=4,
        )

    def forward(self, x):
        x = self.first(x)
        x += self.table.to(x.device, dtype=x.dtype)
        return x


def get_inputs():
    return [torch.randn(2, 3, 4)]
"""
BUFFER = """\
        self.register_buffer("table", positions(
            length=3,
            dim=4,
        ), persistent=False)
"""


def on_a_gpu(tmp_path, text):
    """Return new texts, as if all but what no module holds had been on a GPU."""
    problem, recording = problem_and_recording(tmp_path, text)
    values = tuple(
        one if one.origin == "other" else msgspec.structs.replace(one, device="cuda")
        for one in recording.values
    )
    recording = msgspec.structs.replace(recording, values=values)
    strategy = RecordedRewrites(rules=moved.RULES, kind="cuda")
    return [one.program.source for one in strategy.propose_recorded(problem, recording, (), 9)]


def test_an_attribute_that_every_call_copies_becomes_a_buffer(tmp_path):
    (new,) = on_a_gpu(tmp_path, TEXT)
    assert BUFFER in new
    assert "x += self.table.to(x.device, dtype=x.dtype)" in new
    assert_same(tmp_path, TEXT, new)


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("self.first(x)", "self.first(x)\n        self.table = self.table + 0"),
        ("self.table = positions", "self.table = self.other = positions"),
        ("        self.table = positions", "        if True:\n            self.table = positions"),
        ("self.table.to(x.device, dtype=x.dtype)", "positions(3, 4).to(x.device)"),
    ],
)
def test_what_changes_or_is_no_attribute_stays(tmp_path, change, to):
    text = TEXT.replace(change, to)
    assert text != TEXT
    assert on_a_gpu(tmp_path, text) == []


def test_on_a_cpu_nothing_is_copied(tmp_path):
    problem, recording = problem_and_recording(tmp_path, TEXT)
    strategy = RecordedRewrites(rules=moved.RULES, kind="cpu")
    assert strategy.propose_recorded(problem, recording, (), 9) == []
