"""Loops over lists of tensors that become calls for all of them, and loops that must stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded.foreach import RULES
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.decay, self.lr = 0.9, 0.1
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)
        self.net = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, xs, ys):
        xs = [x.clone() for x in xs]
        {body}


def get_init_inputs():
    return [4, 4]


def get_inputs():
    lists = [[torch.randn(4, 4) if i % 2 == 0 else torch.randn(4) for i in range(6)] for _ in "xy"]
    return [*lists]
"""


def text_of(body: str) -> str:
    lines = body.strip("\n").split("\n")
    return TEXT.format(body="\n".join([lines[0], *("        " + one for one in lines[1:])]))


FOUND = {
    "a formula": (
        "out = []\nfor p, x in zip(self.net.parameters(), xs):\n"
        "    out.append(x * self.decay + p * (1 - self.decay))\nreturn out",
        "torch._foreach_mul(x_list, self.decay), ps, alpha=1 - self.decay",
    ),
    "a scaled list that is added to another": (
        "return [0.5 * x + y for x, y in zip(xs, ys)]",
        "torch._foreach_add(y_list, x_list, alpha=0.5)",
    ),
    "a difference": (
        "for x, y in zip(xs, ys):\n    x -= y * self.lr\nreturn xs",
        "torch._foreach_sub_(x_list, y_list, alpha=self.lr)",
    ),
    "a list": ("return [2 - y / 3 for y in ys]", "_foreach_add(torch._foreach_neg("),
    "a generator": ("return tuple(1 / (x * x + 1) for x in xs)", "_foreach_reciprocal"),
    "in place": (
        "for x, y in zip(xs, ys):\n    x.mul_(self.decay).add_(y, alpha=1 - self.decay)\nreturn xs",
        "alpha=1 - self.decay)",
    ),
    "a copy": (
        "for p, x in zip(self.net.parameters(), xs):\n    x.copy_(p.detach())\n"
        "    x.data.lerp_(p.data, 0.25)\nreturn xs",
        "_foreach_lerp_",
    ),
    "operators in place": ("for x in xs:\n    x *= self.decay\nreturn xs", "_foreach_mul_(x"),
    "a branch that all take": (
        "for x, y in zip(xs, ys):\n    g = y\n    if self.lr:\n"
        "        g = g.add(x, alpha=self.lr)\n"
        "    x.add_(g, alpha=-self.lr)\nreturn xs",
        "if self.lr:",
    ),
    "adam": (
        "for x, y in zip(xs, ys):\n    step = self.lr / math.sqrt(2)\n    g = y\n"
        "    x.mul_(0.9).addcmul_(g, g, value=0.1)\n    denom = x.abs().sqrt().add_(1e-8)\n"
        "    x.addcdiv_(g, denom, value=-step)\nreturn xs",
        "value=-step",
    ),
    "a condition": (
        "out = []\nfor name, p in self.named_parameters():\n    if not p.requires_grad:\n"
        "        continue\n    out.append(p * 2)\nreturn out",
        "if p.requires_grad]",
    ),
    "an average by name": (
        "kept = {n: p.data + 1 for n, p in self.net.named_parameters()}\n"
        "for name, p in self.net.named_parameters():\n    if 'bias' in name:\n"
        "        new = kept[name] * 0.9 + p.data * 0.1\n        kept[name] = new.clone()\n"
        "return list(kept.values())",
        "kept[name] = new",
    ),
    "a penalty": (
        "total = 0\nfor p in self.net.parameters():\n    total = total + p.pow(2).sum()\n"
        "return total",
        "torch._foreach_norm(ps)",
    ),
    "a penalty to another": (
        "total = torch.ones(())\nfor p in self.net.parameters():\n"
        "    total += 0.5 * torch.norm(p, 1)\nreturn total",
        "total += torch.stack(",
    ),
    "a sum": ("return sum((y ** 2).sum() for y in ys) * 3", ".sum() if y_list else 0) * 3"),
    "the norm of norms": (
        "return torch.norm(torch.stack([torch.norm(y.detach(), 2.0) for y in ys]))",
        "torch.norm(torch.stack(torch._foreach_norm(",
    ),
    "the norm as a number": (
        "total = 0.0\nfor y in ys:\n    n = y.norm(2)\n    total += n.item() ** 2\n"
        "total = total ** 0.5\nreturn torch.tensor(total)",
        "total = torch.nn.utils.get_total_norm(",
    ),
    "squares as a number": (
        "total = 0.0\nfor y in ys:\n    total += y.norm(2).item() ** 2\nreturn torch.tensor(total)",
        ".item() ** 2 for",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_loops_over_tensors_become_calls_for_lists(tmp_path: Path, name: str) -> None:
    body, part = FOUND[name]
    text = text_of(body)
    changed = proposed(tmp_path, text, RULES)["foreach"]
    assert part in changed, changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize("name", FOUND)
def test_empty_lists_and_short_ones_stay_right(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name][0])
    changed = loaded(proposed(tmp_path, text, RULES)["foreach"], tmp_path / "after.py")
    before = loaded(text, tmp_path / "before.py")
    torch.manual_seed(0)
    xs = [torch.randn(4) for _ in range(6)]
    results = []
    for module in (before, changed):
        torch.manual_seed(0)
        model = (getattr(module, "ModelNew", None) or module.Model)(4, 0)
        try:
            with torch.no_grad():
                results.append([model([], []), model(xs[:3], [])])
        except RuntimeError as error:
            results.append(type(error).__name__)
    if isinstance(results[0], str):
        assert results[1] == results[0]
    else:
        torch.testing.assert_close(results[1], results[0])


STAYS = {
    "a carried tensor": "h = xs[0]\nfor y in ys[::2]:\n    h = h * y\nreturn h",
    "a number of each turn": "return [y * i for i, y in enumerate(ys)]",
    "a shared tensor": "return [y * self.scale for y in ys]",
    "a shared tensor, added": "return [torch.add(y, self.scale, alpha=2) for y in ys]",
    "whole numbers": "return [y.long() * 2 for y in ys]",
    "random numbers": "return [torch.randn_like(y) * y for y in ys]",
    "a branch of each turn": (
        "out = []\nfor y in ys:\n    if y.dim() == 1:\n        y = y * 2\n    out.append(y * 3)\n"
        "return out"
    ),
    "a condition that has an effect": (
        "out = []\nleft = list(xs)\nfor y in ys:\n    if left.pop() is None:\n        continue\n"
        "    out.append(y * 3)\nreturn out"
    ),
    "the last turn is read": "for y in ys:\n    z = y * 2\nreturn z",
    "a list that grows": (
        "for y in xs:\n    if len(xs) < 9:\n        xs.append(y * 2)\n    ys.append(y * 3)\n"
        "return ys"
    ),
    "one tensor for all turns": "for y in [xs[0]] * 5:\n    y.mul_(0.5).add_(y)\nreturn xs",
    "an early end": "out = []\nfor y in ys:\n    out.append(y * 2)\n    if len(out) > 4:\n"
    "        break\n"
    "return out",
    "rows of a tensor": (
        "x = torch.stack(ys[::2])\nfor i in range(3):\n    x[i] = x[i] * 2\nreturn x"
    ),
    "few": "return [y * 2 for y in ys[:3]]",
    "a sum of whole tensors": (
        "total = 0\nfor y in ys[::2]:\n    total = total + y * 2\nreturn total"
    ),
    "clamped": "return [y.clamp(0, 1) for y in ys]",
    "a power of tensors": "return [y.abs().pow(y) for y in ys]",
    "a norm of rows": "return [y.norm(2, dim=-1) for y in ys]",
    "rounded quotients": "return [torch.div(y, 2, rounding_mode='floor') for y in ys]",
    "an answer that is an input": "return [y for y in ys]",
    "a dictionary with one key": (
        "kept = {}\nfor name, p in self.named_parameters():\n    kept[name[:1]] = p * 2\n"
        "return list(kept.values())"
    ),
    "another branch": (
        "out = []\nfor y in ys:\n    if self.lr:\n        y = y * 2\n    else:\n        y = y * 3\n"
        "    out.append(y * 3)\nreturn out"
    ),
    "a temporary is written": (
        "out = []\nfor x, y in zip(xs, ys):\n    z = x + y\n    out.append(x.mul_(2) * z)\n"
        "return out"
    ),
    "only if asked": "return [y * 2 for y in ys] if self.lr else ys",
}


@pytest.mark.parametrize("name", STAYS)
def test_other_loops_stay(tmp_path: Path, name: str) -> None:
    assert proposed(tmp_path, text_of(STAYS[name]), RULES) == {}


def test_gradients_are_those_of_the_loop(tmp_path: Path) -> None:
    text = text_of(FOUND["a penalty"][0])
    changed = proposed(tmp_path, text, RULES, mode="train")["foreach"]
    grads = []
    for source in (text, changed):
        module = loaded(source, tmp_path / "one.py")
        torch.manual_seed(0)
        model = (getattr(module, "ModelNew", None) or module.Model)(4, 3)
        model([], []).backward()
        grads.append([p.grad for p in model.net.parameters()])
    torch.testing.assert_close(grads[0], grads[1])
