"""Tensors that grow by cat in a loop are written into a buffer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.grown import RULES
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)

    def forward(self, x, steps=12):
        {code}


def get_inputs():
    return [torch.randn(16, 5, 64)]
"""
CACHE = """_, keys, values = self.qkv(x).chunk(3, -1)
x = x[:, -1:]
outs = []
for t in range(steps):
    q, k, v = self.qkv(x).chunk(3, -1)
    keys = torch.cat([keys, k], dim=1)
    values = torch.cat((values, v), 1)
    scores = q @ keys.transpose(-2, -1)
    x = torch.tanh(self.out(scores.softmax(-1) @ values))
    outs.append(x)
return torch.cat(outs, 1)"""
FOUND = {
    "a cache": CACHE,
    "returned": CACHE.replace("torch.cat(outs, 1)", "torch.cat(outs, 1), keys, values"),
    "a range with two ends": CACHE.replace("range(steps)", "range(2, 2 + steps)"),
    "rows of several": CACHE.replace("x[:, -1:]", "x[:, -3:]").replace("keys.tr", "keys[:, :].tr"),
    "from nothing": CACHE.replace(
        "chunk(3, -1)\nx =", "chunk(3, -1)\nkeys, values = keys[:, :0], values[:, :0]\nx =", 1
    ),
}
LEFT = {
    "viewed": CACHE.replace("keys.transpose", "keys.view(16, -1, 64).transpose"),
    "written to": CACHE.replace("    scores = q", "    keys[:, 0] = 0.0\n    scores = q"),
    "written to in training": CACHE.replace(
        "    scores = q", "    if self.training:\n        keys.zero_()\n    scores = q"
    ),
    "bound twice": CACHE.replace("    scores = q", "    keys = keys.flip(1)\n    scores = q"),
    "the other way round": CACHE.replace("[keys, k]", "[k, keys]").replace(
        "(values, v)", "(v, values)"
    ),
    "few turns": CACHE.replace("range(steps)", "range(3)"),
    "small": CACHE.replace("(x).chunk(3, -1)", "(x)[..., :9].chunk(3, -1)")
    .replace("self.out(", "self.out.weight[:3, :1].sum() + (")
    .replace("torch.cat(outs, 1)", "scores")
    .replace("x = torch.tanh", "_ = torch.tanh"),
    "in a branch": CACHE.replace(
        "    keys = torch.cat([keys, k], dim=1)\n    values = torch.cat((values, v), 1)",
        "    if t >= 0:\n        keys = torch.cat([keys, k], dim=1)\n"
        "        values = torch.cat((values, v), 1)",
    ),
    "the number of turns changes": CACHE.replace(
        "    outs.append(x)", "    outs.append(x)\n    steps = 0"
    ),
}


def text_of(code: str) -> str:
    return TEXT.replace("{code}", code.replace("\n", "\n        "))


@pytest.mark.parametrize("name", FOUND)
def test_growing_tensor_is_found(name: str, tmp_path: Path) -> None:
    text = text_of(FOUND[name])
    [new] = proposed(tmp_path, text, RULES).values()
    assert "keys = keys_buffer.narrow(1, 0, num_keys)" in new
    assert "values_buffer, num_values = append_to_buffer(" in new
    assert_same(tmp_path, text, new)


@pytest.mark.parametrize("name", LEFT)
def test_look_alike_is_left(name: str, tmp_path: Path) -> None:
    made = proposed(tmp_path, text_of(LEFT[name]), RULES).values()
    assert all("keys_buffer" not in new for new in made)


def test_training_is_left(tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(CACHE), RULES, mode="train") == {}


@pytest.mark.parametrize("steps", [0, 1, 30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_calls_give_the_same_with_gradients_too(
    steps: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    text = text_of(FOUND["returned"].replace("torch.cat(outs, 1), ", ""))
    [new] = proposed(tmp_path, text, RULES).values()
    results = []
    for one in (text, new):
        module = loaded(one, tmp_path / "other.py")
        torch.manual_seed(0)
        model = (getattr(module, "ModelNew", None) or module.Model)().to(dtype)
        given = torch.randn(2, 3, 64, dtype=dtype, requires_grad=True)
        keys, values = model(given, steps)
        (keys.square().sum() + values.sum()).backward()
        with torch.no_grad():
            results.append((keys, values, given.grad, *model(given, steps)))
    torch.testing.assert_close(results[0], results[1])
