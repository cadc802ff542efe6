"""The gain of a norm without weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.norm_gain import RULES
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16, elementwise_affine=False, eps=1e-3)
        self.rms = nn.RMSNorm(16, elementwise_affine=False)
        self.full = nn.LayerNorm(16)
        self.gamma = nn.Parameter(torch.rand(16))
        self.rows = nn.Parameter(torch.rand(8, 1))

    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(2, 8, 16)]
"""
FOUND = [
    "return self.norm(x) * (self.gamma + 1.)",
    "gamma = self.gamma\nreturn self.rms(x) * gamma",
    "y = (1 + self.gamma) * self.norm(x)\nreturn y.relu()",
]
LEFT = [
    "return self.full(x) * self.gamma",
    "return self.norm(x) * self.rows",
    "return self.norm(x) * x",
    "y = self.norm(x)\nreturn y * self.gamma + y",
    "return self.norm(x.exp()) * self.gamma",
    "return self.norm(x) + self.gamma",
]


def text(body: str) -> str:
    return TEXT.replace("{body}", body.replace("\n", "\n        "))


@pytest.mark.parametrize("body", FOUND)
def test_a_gain_is_given_to_the_norm(body: str, tmp_path: Path) -> None:
    before = text(body)
    new = proposed(tmp_path, before, RULES)["norm_gain"]
    assert "_norm(x,self." in "".join(new.split())
    assert_same(tmp_path, before, new)
    for gamma, dtype in ((torch.rand(2, 1, 16), torch.float32), (torch.rand(16), torch.float64)):
        given = torch.randn(2, 8, 16, dtype=dtype)
        made = []
        for code in (before, new):
            module = loaded(code, tmp_path / "other.py")
            model = getattr(module, "ModelNew", None) or module.Model
            one = model()
            one.gamma = torch.nn.Parameter(gamma)
            made.append(one(given))
        torch.testing.assert_close(*made)


@pytest.mark.parametrize("body", LEFT)
def test_other_products_are_left(body: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text(body), RULES) == {}
