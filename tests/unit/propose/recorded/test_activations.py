"""Activations that are found by what their formulas compute, and formulas that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded.activations import RULES
from tests.unit.propose.recorded.rig import assert_same, proposed

TEXT = """import math
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = math.sqrt(2.0)


{helper}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = 1.0
        self.slope = 0.2

    def forward(self, x, y):
        {line}
        return z


def get_inputs():
    return [3 * torch.randn(8, 16), torch.randn(8, 16)]
"""
HELPER = "def act(x, slope=0.1):\n    return {}"


def text_of(formula: str, helper: str = "") -> str:
    return TEXT.format(line=f"z = {formula}", helper=helper)


@pytest.mark.parametrize(
    ("formula", "new"),
    [
        ("x * torch.sigmoid(x)", "F.silu(x)"),
        ("x / (1 + torch.exp(-x))", "F.silu(x)"),
        ("0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))", "F.gelu(x)"),
        ("x * (1 + torch.erf(x / ROOT)) / 2", "F.gelu(x)"),
        (
            "x * 0.5 * (1 + torch.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))",
            'F.gelu(x, approximate="tanh")',
        ),
        ("x * torch.tanh(F.softplus(x))", "F.mish(x)"),
        ("x * torch.tanh(torch.log(1 + x.exp()))", "F.mish(x)"),
        ("x * (x + 3).clamp(0, 6) / 6.0", "F.hardswish(x)"),
        ("x * F.relu6(x + 3) / 6", "F.hardswish(x)"),
        ("torch.log1p(torch.exp(x))", "F.softplus(x)"),
        ("torch.maximum(x, torch.zeros_like(x))", "F.relu(x)"),
        ("torch.where(x > 0, x, 0.2 * x)", "F.leaky_relu(x, 0.2)"),
        ("torch.where(0 < x, x, self.slope * x)", "F.leaky_relu(x, self.slope)"),
        ("torch.where(x > 0, x, torch.exp(x) - 1)", "F.elu(x)"),
        ("x / (1 + x.abs())", "F.softsign(x)"),
        ("1 / (1 + torch.exp(-x))", "torch.sigmoid(x)"),
        ("y * x * torch.sigmoid(x)", "y * F.silu(x)"),
    ],
)
def test_formulas_are_found(tmp_path: Path, formula: str, new: str) -> None:
    text = text_of(formula)
    found = proposed(tmp_path, text, RULES)
    assert len(found) == 1
    (changed,) = found.values()
    assert f"z = {new}\n" in changed
    assert_same(tmp_path, text, changed)


def test_a_helper_is_rewritten_where_it_is_defined(tmp_path: Path) -> None:
    text = text_of("act(x) + act(y)", HELPER.format("torch.where(x > 0, x, slope * x)"))
    changed = proposed(tmp_path, text, RULES)["activation"]
    assert "return F.leaky_relu(x, slope)" in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    "line",
    [
        "z = x * torch.sigmoid(1.702 * x)",
        "z = x * torch.sigmoid(y)",
        "z = x * torch.sigmoid(self.one * x)",  # another number in another model
        "z = torch.where(x > 0, x, torch.zeros_like(x))",  # NaN becomes 0, and stays NaN in relu
        "z = torch.maximum(x, self.slope * x)",  # no leaky relu where the slope is above 1
        "z = 0.5 * x * (1 + torch.erf(x / 1.4))",
        "z = x * torch.sigmoid(x.float()).to(x.dtype)",  # rounds otherwise in bfloat16
        "h = torch.sigmoid(x)\n        if self.one > 2:\n            h = y\n        z = x * h",
        "h = torch.sigmoid(x) if self.one == 1 else y\n        z = x * h",
    ],
)
def test_other_formulas_stay(tmp_path: Path, line: str) -> None:
    assert proposed(tmp_path, TEXT.format(line=line, helper=""), RULES) == {}


GATE = """class Gate(nn.Module):
    def __init__(self, low=0.0, high=6.0, inplace=False):
        super().__init__()
        self.act = {bound}

    def forward(self, x):
        return {result}


gate = Gate()"""


@pytest.mark.parametrize("inplace", ["inplace", "True", "inplace=True"])
def test_a_relu6_of_its_own_class_is_known(tmp_path: Path, inplace: str) -> None:
    helper = GATE.format(bound=f"nn.ReLU6({inplace})", result="self.act(x + 3) / 6")
    text = text_of("x * gate(x)", helper)
    changed = proposed(tmp_path, text, RULES)["activation"]
    assert "z = F.hardswish(x)\n" in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    ("bound", "result"),
    [
        ("nn.Hardtanh(low, high)", "self.act(x + 3) / 6"),  # other bounds in other models
        ("nn.Hardtanh(low, 6.0)", "self.act(x + 3) / 6"),
        ("nn.ReLU6()\n        self.act = nn.Hardtanh(low, high)", "self.act(x + 3) / 6"),
        ("nn.ReLU6()", "self.act(x + 2) / 6"),
        ("nn.ReLU6()", "self.act(x + 3) / 5"),
    ],
)
def test_other_bounds_stay(tmp_path: Path, bound: str, result: str) -> None:
    helper = GATE.format(bound=bound, result=result)
    assert proposed(tmp_path, text_of("x * gate(x)", helper), RULES) == {}


def test_what_is_written_in_place_and_read_again_stays(tmp_path: Path) -> None:
    for line in (
        "h = torch.sigmoid(x)\n        F.threshold(h, 0.5, 0.0, inplace=True)\n        z = x * h",
        "z = F.relu(x, inplace=True) * 1",  # the caller's tensor is written
    ):
        assert proposed(tmp_path, TEXT.format(line=line, helper=""), RULES) == {}
