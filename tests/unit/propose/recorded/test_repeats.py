"""Work that is done again is done once, and work that nothing reads is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import dead, repeats
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


def energy(x, weight):
    y = x @ weight
    return y.pow(2).mean(-1, keepdim=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64, 64))
        self.norm = nn.LayerNorm(64)
        self.act, self.other = nn.ReLU(), nn.ReLU()
        self.act.slope = 0.5
        self.aux_norm = nn.BatchNorm1d(8)
        self.aux, self.head = nn.Linear(64, 64), nn.Linear(64, 64)
        self.drop = nn.Dropout(0.5)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.kept = None

    def advance(self):
        self.act.slope = max(self.act.slope, 0.1)

    def forward(self, x, y, full=False):
        {code}


def get_inputs():
    return [torch.randn(4, 8, 64), torch.randn(4, 8, 64)]
"""
AGAIN = {
    "a = torch.exp(x) * 2\nreturn a + x.exp()": "return a + exp_out",
    "e = energy(x, self.weight)\nreturn (x - e) * energy(x, self.weight)": "(x - e) * e",
    "return self.norm(x).sum() + self.norm(x).mean()": "return norm_out.sum() + norm_out.mean()",
    "a = (x - y).square()\nb = (x - y).square().sum()\nreturn a / b": "b = a.sum()",
    "s = x.softmax(-1)\nt = torch.softmax(x, -1).sum(0)\nreturn s * t": "t = s.sum(0)",
}
INVARIANT = {
    "for _ in range(3):\n    w = self.weight.softmax(-1)\n    x = x @ w\nreturn x": (
        "for _ in range(3):\n            x = x @ w"
    ),
    "for _ in range(3):\n    x = x @ self.weight.softmax(-1)\nreturn x": "x = x @ softmax_out",
    "for layer in self.layers:\n    x = layer(x) + y.mean(0)\nreturn x": "layer(x) + mean_out",
}
NOT_AGAIN = [
    "a = (x * self.act.slope).exp() * 2\nself.advance()\nreturn a + (x * self.act.slope).exp()",
    "rows = [x, y]\nfor _ in range(3):\n    x = x + rows[0].exp()\nreturn x",  # none without turns
    "return x.float().sum() + x.sum()",  # in half precision they differ
    "h = x.float()\nreturn h.sum() + x.sum()",
    "a = x.exp()\nx = x + y\nreturn a * x.exp()",
    "a = x.exp() * 2\nx.add_(1)\nreturn a * x.exp()",
    "a = x.exp() * 2\nif self.training:\n    x.add_(1)\nreturn a * x.exp()",
    "return self.act(x) + self.other(x)",  # two modules, alike for now
    "return self.drop(x) + self.drop(x)",
    "with torch.no_grad():\n    a = x.exp() * 2\nreturn a + x.exp()",
    "a = x.exp()\nb = x.exp()\nreturn a, b",  # two tensors, not one
    "a = x.exp() * 2\nif full:\n    x = y\nreturn a + x.exp()",
    "f = lambda: x.exp()\nreturn x.exp() + f()",
    "for t in range(3):\n    x = x @ (self.weight * t)\nreturn x",
    "for _ in range(3):\n    w = y.exp()\n    w.mul_(2)\n    x = x * w\nreturn x",
    "for _ in range(3):\n    self.kept = x\n    x = x @ self.weight.softmax(-1)\nreturn x",
    "outs = []\nfor _ in range(3):\n    outs.append(self.weight.softmax(-1))\nreturn outs",
    "for layer in self.layers:\n    x = layer(x) + (y.mean(0) if full else 0)\nreturn x",
]
UNREAD = {
    "unused = x.softmax(-1)\nreturn x * 2": "full=False):\n        return x * 2",
    "side = self.aux(x)\nif self.training:\n    return x, side\nreturn x * 2": (
        "if self.training:\n            side = self.aux(x)\n            return x, side"
    ),
    "side = self.aux_norm(x)\nif self.training:\n    return x, side\nreturn x * 2": (
        "if self.training:\n            side = self.aux_norm(x)\n"
    ),
    "side = self.aux(x)\nx = x * 2\nif full:\n    return x, side\nreturn x": (
        "side = self.aux(x) if full else None"
    ),
    "a = x.exp()\nside = self.aux(a)\nif not full:\n    return x * 2\nelse:\n    return side": (
        "else:\n            a = x.exp()\n            side = self.aux(a)\n            return side"
    ),
    "side = self.aux(x)\nreturn (x, side) if self.training else x": (
        "return (x, self.aux(x)) if self.training else x"
    ),
    "a = x.exp()\nside = self.aux(a + x)\nx = x * 2\nif full:\n    return x, side\nreturn x": (
        "a = x.exp() if full else None\n        side = self.aux(a + x) if full else None"
    ),
    "outs = []\nfor layer in self.layers:\n    x = layer(x)\n    outs.append(self.head(x))\n"
    "return outs[-1]": "return self.head(x)",
    "return F.dropout(x, 0.0, self.training) * 2": "return x * 2",
    "return F.dropout(x, p=0.3, training=False) * 2": "return x * 2",
}
READ = [
    "try:\n    z = x.exp()\n    unused = z.softmax(-1)\nexcept RuntimeError:\n    z = y\nreturn z",
    "side = self.aux_norm(x)\nif full:\n    return x, side\nreturn x * 2",  # it keeps statistics
    "side = self.drop(self.aux(x))\nif self.training:\n    return x, side\nreturn x * 2",
    "side = self.aux(x)\nx = x * 2\nif x.sum() > 1e9:\n    return x, side\nreturn x",
    "side = self.aux(x)\nx.add_(1)\nfull = x is None\nif full:\n    return x, side\nreturn x",
    "side = self.aux(x)\nif full:\n    return side\nreturn x * side",
    "side = self.aux(x)\ngive = lambda: side\nreturn x * 2 if not full else give()",
    "unused = self.drop(x)\nreturn x * 2",  # it moves the generator on
    "unused = x.add_(1)\nreturn x * 2",
    "unused = x.transpose(0, 1)\nreturn x * 2",  # a view costs nothing
    "outs = []\nfor layer in self.layers:\n    x = layer(x)\n    outs.append(self.head(x))\n"
    "return outs[-1] + outs[0]",
    "outs = []\nfor layer in self.layers:\n    outs.append(self.head(x))\n    x = layer(x)\n"
    "return outs[-1]",
    "outs = []\nfor layer in self.layers:\n    x = layer(x)\n    outs.append(self.drop(x))\n"
    "return outs[-1]",
    "outs = []\nfor layer in self.layers:\n    x = layer(x)\n    outs.append(self.head(x))\n"
    "x = x * 2\nreturn outs[-1] + x",
    "return F.dropout(x, 0.1, self.training) * 2",
]


def text_of(code: str) -> str:
    return TEXT.replace("{code}", code.replace("\n", "\n        "))


@pytest.mark.parametrize(("code", "wanted"), [*AGAIN.items(), *INVARIANT.items()])
def test_repeated_work_is_found(code: str, wanted: str, tmp_path: Path) -> None:
    [new] = proposed(tmp_path, text_of(code), repeats.RULES).values()
    assert wanted in new
    assert_same(tmp_path, text_of(code), new)


@pytest.mark.parametrize("code", NOT_AGAIN)
def test_other_work_is_left(code: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(code), repeats.RULES) == {}


@pytest.mark.parametrize("code", UNREAD)
def test_dead_work_is_found(code: str, tmp_path: Path) -> None:
    text = text_of(code)
    [new] = proposed(tmp_path, text, dead.RULES).values()
    assert UNREAD[code] in new
    assert_same(tmp_path, text, new)
    for options in ({}, {"full": True}):  # in training too, with the statistics that it keeps
        results = []
        for one in (text, new):
            module = loaded(one, tmp_path / "trained.py")
            torch.manual_seed(0)
            model = (getattr(module, "ModelNew", None) or module.Model)()
            results.append((model(*module.get_inputs(), **options), model.state_dict()))
        torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("code", READ)
def test_work_that_is_read_is_left(code: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(code), dead.RULES) == {}
