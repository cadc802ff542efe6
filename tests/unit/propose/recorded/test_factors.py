"""Small factors first, and functions that add or subtract one by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.factors import RULES
from cudal1_ci.sandboxed.recorder.recording import recorded
from tests.unit.propose.recorded.rig import outputs, proposed

TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 8.0
        self.gamma = nn.Parameter(torch.rand(64, 1, 1))
        self.wide = nn.Parameter(torch.rand(2, 64, 8, 8))

    def forward(self, x):
        return {code}


def get_inputs():
    return [torch.randn(2, 64, 8, 8)]
"""
FOUND = {
    "F.normalize(x, dim=1) * (self.gamma + 1) * self.scale": "* ((self.gamma + 1) * self.scale)",
    "x * 2.0 * self.scale": "x * (2.0 * self.scale)",
    "x * self.gamma / self.scale": "x * (self.gamma / self.scale)",
    "x / self.scale / self.gamma": "x / (self.scale * self.gamma)",
    "x.sign() * (x.abs() + 1.).log()": "x.sign() * x.abs().log1p()",
    "torch.log(1 + x.square())": "x.square().log1p()",
    "x.exp() - 1": "x.expm1()",
}
LEFT = [
    "x * self.wide * self.scale",  # no small factor
    "x / self.gamma * self.scale",  # a division that would become another one
    "x / 2.0 / 0.5",  # numbers alone: Python refuses to divide by 0, and torch does not
    "x * self.gamma * self.scale.bit_length()",
    "torch.log(2 + x.square())",
    "x.exp() - self.scale",
    "1 - x.exp()",
    "x * (self.gamma + self.scale)",
]


@pytest.mark.parametrize("code", FOUND)
def test_is_found(code: str, tmp_path: Path) -> None:
    text = TEXT.replace("{code}", code)
    [new] = proposed(tmp_path, text, RULES).values()
    assert FOUND[code] in new
    before, after = outputs(text, tmp_path / "a.py"), outputs(new, tmp_path / "b.py")
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize("code", LEFT)
def test_look_alike_is_left(code: str, tmp_path: Path) -> None:
    text = TEXT.replace("{code}", code)
    if "bit_length" in code:
        text = text.replace("self.scale = 8.0", "self.scale = 8")
    assert proposed(tmp_path, text, RULES) == {}


def test_values_under_vmap_are_not_looked_at() -> None:
    """A mask of one row at a time is recorded, though it has no value of its own."""
    rows = torch.randn(3, 4)
    found = recorded(lambda: torch.vmap(lambda row: row > 0)(rows), None, [rows], None, Path())
    [mask] = [found.values[one.outputs[0]] for one in found.operations if one.name == "gt"]
    assert mask.dtype == "bool" and mask.fill is None
