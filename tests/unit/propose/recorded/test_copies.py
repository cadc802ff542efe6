"""Copies that are only read go; those that something needs stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import cancelled, copies
from tests.unit.propose.recorded.rig import assert_same, proposed

RULES = (*copies.RULES, *cancelled.RULES)
TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64, 64))
        self.query = nn.Parameter(torch.rand(1, 8, 64))
        self.wide = nn.Parameter(torch.rand(4, 8, 64))
        self.kept = None

    def forward(self, x):
        b, n = x.shape[:2]
        {code}


def get_inputs():
    return [torch.randn(4, 32, 64)]
"""
FOUND = {
    "h = x.clone()\nreturn h * 2 + h.mean()": "h = x\n",
    "h = x.clone()\nrow = h[0]\nreturn row.exp(), h.sum(1)": "h = x\n",
    "w = self.weight.t().contiguous()\nreturn x @ w": "w = self.weight.t()\n",
    "return F.linear(x, self.weight.transpose(0, 1).contiguous())": ".transpose(0, 1))",
    "m = x.mean(1, keepdim=True).expand(-1, n, -1).clone()\nreturn x - m": ".expand(-1, n, -1)\n",
    "m = x.mean(1, keepdim=True).expand_as(x).contiguous()\nreturn x - m": ".expand_as(x)\n",
    "return x + self.weight[0].unsqueeze(0).repeat(b, n, 1)": ".expand(b, n, -1)",
    "return x + x.mean(1, keepdim=True).repeat(1, n, 1)": ".expand(-1, n, -1)",
    "return torch.cat([self.query.repeat(b, 1, 1), x], dim=1)": "self.query.expand(b, -1, -1)",
    "w = self.weight.unsqueeze(0).repeat(b, 1, 1)\nreturn torch.bmm(x, w)": ".expand(b, -1, -1)",
    "keep = (x > 0).float().bool()\nreturn x.masked_fill(keep, 0.0)": "keep = x > 0\n",
    "h = x.transpose(1, 2).contiguous()\nz = h.amax(1)\nreturn h.transpose(1, 2).exp(), z": (
        "return x.exp(), z"
    ),
    "h = x.permute(2, 0, 1).contiguous()\nh = h.permute(1, 2, 0)\nreturn h * 2": "h = x\n",
    "a, c = x.chunk(2, 2)\nreturn torch.cat([a, c], 2) * 2": "return x * 2",
    "rows = x.unbind(1)\nreturn torch.stack(rows, 1) * 2": "return x * 2",
    "return torch.cat(x.split(8, dim=1), dim=1) * 2": "return x * 2",
}
LEFT = [
    "h = x.transpose(1, 2).contiguous()\nreturn h.transpose(1, 2)",  # a copy is returned
    "h = x.transpose(1, 2).contiguous()\nh.mul_(2)\nreturn h.transpose(1, 2) * 2",
    "h = x.permute(2, 0, 1).contiguous()\nh = h.permute(2, 0, 1)\nreturn h * 2",
    "a, c = x.chunk(2, 2)\nreturn torch.cat([c, a], 2) * 2",
    "a, c, _ = x[:, :30].chunk(3, 1)\nreturn torch.cat([a, c], 1) * 2",  # a part is left out
    "return torch.cat(x.chunk(2, 1), 2) * 2",  # another dimension
    "return torch.cat(x.chunk(2, 2), 2)",
    "h = x.clone()\nh.mul_(2)\nreturn h",  # written to
    "h = x.clone()\nh[0] = 0.0\nreturn h * 2",
    "h = x.clone()\nrow = h[0]\nrow += 1\nreturn h * 2",  # written to through a view
    "h = x.clone()\nx.add_(1)\nreturn x * h",  # the original is written to
    "return x.clone()",
    "h = x.clone()\ny = h * 2\nreturn y, h",
    "h = x.clone()\nself.kept = h\nreturn h * 2",
    "h = x.clone()\nif self.training:\n    h.zero_()\nreturn h * 2",  # in another call
    "h = x.clone()\nif self.training:\n    x.zero_()\nreturn h * 2",
    "h = x.clone()\nif self.training:\n    return h\nreturn h * 2",
    "h = x.clone()\ngive = lambda: h\nreturn give() * 2",
    "h = x.transpose(1, 2).contiguous()\nreturn h.view(b, -1)",  # a view needs the copy
    "return x.transpose(1, 2).contiguous() * 2",  # its layout would be another one
    "return x + x.mean(1, keepdim=True).repeat(1, n, 1).add_(1)",
    "return self.query.repeat(b, 1, 1)",  # the caller may write to it
    "return x[:, :8] * self.wide[:1].repeat(b, 1, 1)",  # a slice may have other lengths
    "return self.wide.repeat(1, 4, 1) * x",  # eight rows are repeated
    "m = x.mean(1, keepdim=True).repeat(1, n, 1)\nreturn m.view(-1, 64) * 2",
    "keep = x.relu().bool()\nreturn x.masked_fill(keep, 0.0)",
    "return (x > 0).float().bool()",
    "keep = (x > 0).int().float().clamp(max=0).bool()\nreturn x.masked_fill(keep, 0.0)",
]


def text_of(code: str) -> str:
    return TEXT.replace("{code}", code.replace("\n", "\n        "))


@pytest.mark.parametrize("code", FOUND)
def test_copy_is_found(code: str, tmp_path: Path) -> None:
    [new] = proposed(tmp_path, text_of(code), RULES).values()
    assert FOUND[code] in new
    assert_same(tmp_path, text_of(code), new)


@pytest.mark.parametrize("code", LEFT)
def test_needed_copy_is_left(code: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(code), RULES) == {}
