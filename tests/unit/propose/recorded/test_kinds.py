"""Sorts, sums, branches and copies that public fixes replace: found, equal, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import (
    attention,
    cumulative,
    grouped,
    loops,
    pairs,
    top,
)
from tests.unit.propose.recorded.rig import assert_found, assert_left_alone

RULES = (
    *cumulative.RULES,
    *loops.RULES,
    *attention.RULES,
    *grouped.RULES,
    *pairs.RULES,
    *top.RULES,
)
START = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, k=4, heads=2):
        super().__init__()
        self.k, self.heads = k, heads
        self.row = nn.Parameter(torch.randn(1, 48))
        self.grid = nn.Parameter(torch.randn(3, 48))
        self.gain = nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x, y, mask, numbers, q, few, more):
"""
END = """

def get_inputs():
    return [
        torch.randn(6, 48),
        torch.randn(6, 48),
        torch.rand(6, 48) > 0.5,
        torch.randint(0, 4, (6,)),
        torch.randn(2, 4, 16, 8),
        torch.randn(2, 2, 16, 8),
        torch.randn(2, 2, 16, 8),
    ]
"""
FOUND = {
    "descending": (
        "first_of_sort",
        "return torch.sort(x, dim=1, descending=True).values[:, : self.k]",
    ),
    "sort": (
        "first_of_sort",
        """values, order = torch.sort(x, dim=-1)
return values[..., : self.k], values[:, 1 : self.k]""",
    ),
    "middle": ("first_of_sort", "return x.t().sort(dim=0)[0][: self.k]"),
    "positions": ("first_of_sort", "return x.argsort(dim=1)[:, :4]"),
    "positions too": (
        "first_of_sort",
        "values, order = x.sort(dim=1)\nreturn values[:, : self.k], order[:, : self.k]",
    ),
    "nearest": (
        "first_of_sort",
        "d, i = torch.cdist(x.t(), y.t()).sort()\nd, i = d[:, :3], i[:, :3]\nreturn d, i",
    ),
    "positions of most": (
        "first_of_sort",
        "return torch.argsort(x, 1, descending=True)[:, : self.k]",
    ),
    "nth": ("nth_of_sort", "values, _ = torch.sort(x, dim=1)\nreturn values[:, -self.k]"),
    "nth of descending": (
        "nth_of_sort",
        "return x.sort(descending=True)[0][..., self.k - 1].sum()",
    ),
    "middle row": ("nth_of_sort", "return (x * 2).sort(0).values[x.size(0) // 2]"),
    "last of descending": ("nth_of_sort", "return x.sort(-1, True)[0][:, -2]"),
    "row": ("broadcast_product", "return (x * self.row).sum(-1)"),
    "vector": ("broadcast_product", "return 1.0 - (self.grid[0] * x).sum(dim=1)"),
    "repeated rows": (
        "pair_distances",
        """x = torch.cat([x, x]).unsqueeze(1).expand(-1, 12, -1)
y = torch.cat([y, y]).unsqueeze(0).expand(12, -1, -1)
return ((x - y) ** 2).sum(-1)""",
    ),
    "running sum": (
        "cumulative_sum",
        """out = torch.zeros_like(x)
total = torch.zeros_like(x[:, 0])
for t in range(x.size(1)):
    total = total + x[:, t]
    out[:, t] = total
return out""",
    ),
    "sum to go": (
        "cumulative_sum",
        """out = torch.zeros_like(x)
total = torch.zeros_like(x[0])
for t in reversed(range(x.size(0))):
    total = y[t] * 2.0 + total
    out[t] = total
return out""",
    ),
    "listed sum": (
        "cumulative_sum",
        """sums = []
total = torch.zeros_like(x[:, 0])
for t in range(x.size(1)):
    total = total + x[:, t]
    sums.append(total)
return torch.stack(sums, dim=1)""",
    ),
    "branches": (
        "batched_loop",
        """cells = x.flatten()
rows = []
for one in cells:
    half = one / 2
    if half < -0.2:
        rows.append(one)
    elif half > 0.3:
        rows.append(half * 3)
    else:
        less = half - 0.1
        rows.append(less * one)
return torch.stack(rows)""",
    ),
    "branch of a name": (
        "batched_loop",
        """rows = []
for i in range(x.size(0)):
    if x[i, 0] > 0:
        row = x[i] * 2
    else:
        row = y[i]
    rows.append(row + 1)
return torch.stack(rows)""",
    ),
    "grown": (
        "batched_loop",
        """rows = torch.zeros(1, 48)
for i in range(x.size(0)):
    row = (x[i] * y[i]).unsqueeze(0)
    rows = torch.cat([rows, row], dim=0)
return rows""",
    ),
    "repeats": (
        "batched_loop",
        """rows = []
for one, number in zip(x, numbers):
    rows.append(one.repeat(int(number), 1))
return torch.cat(rows)""",
    ),
    "masked rows": (
        "batched_loop",
        """sums = []
for i in range(x.size(0)):
    chosen = x[i][mask[i]]
    sums.append(torch.log(1 + torch.exp(0.1 * (chosen - 1.0)).sum()))
return torch.stack(sums)""",
    ),
    "masked extrema": (
        "batched_loop",
        """most, least = [], []
for i in range(x.size(0)):
    most.append(x[i][mask[i]].max())
    least.append(x[i][mask[i] == 0].min())
return torch.stack(most) - torch.stack(least)""",
    ),
    "shared heads": (
        "grouped_heads",
        """few = few.repeat_interleave(self.heads, dim=1)
more = more[:, :, None].expand(2, 2, self.heads, 16, 8).reshape(2, 2 * self.heads, 16, 8)
return F.scaled_dot_product_attention(q, few, more)""",
    ),
    "shared heads in the call": (
        "grouped_heads",
        """return F.scaled_dot_product_attention(
    q, few.repeat_interleave(2, dim=1), more.repeat_interleave(2, dim=1), is_causal=True
)""",
    ),
    "factor of each head": (
        "attention",
        """scores = q @ q.transpose(-2, -1)
gain = self.gain.clamp(max=2.0).exp()
scores = scores * gain
return scores.softmax(dim=-1) @ q""",
    ),
}
LEFT = {
    "positions of numbers": ("first_of_sort", "return numbers.repeat(9).argsort()[:4]"),
    "stable positions": ("first_of_sort", "return x.argsort(dim=1, stable=True)[:, :4]"),
    "all positions": (
        "first_of_sort",
        "values, order = x.sort(dim=1)\nreturn values[:, :4], order",
    ),
    "two of an order": ("nth_of_sort", "s = x.sort(dim=1)[0]\nreturn s[:, 3] - s[:, -3]"),
    "one and its position": ("nth_of_sort", "s, i = x.sort(dim=1)\nreturn s[:, 3], i[:, 3]"),
    "another dimension's index": ("nth_of_sort", "return x.sort(dim=1)[0][3]"),
    "rows of an order": ("nth_of_sort", "return x.sort(dim=1)[0][:, numbers]"),
    "sign of another call": ("nth_of_sort", "return x.sort(dim=1)[0][:, self.k - 6]"),
    "last elements": ("first_of_sort", "return x.sort(dim=1)[0][:, -4:]"),
    "most elements": ("first_of_sort", "return x.sort(dim=1)[0][:, :40]"),
    "read again": (
        "first_of_sort",
        "values, order = x.sort(dim=1)\nreturn values[:, :4], values.sum(1)",
    ),
    "stable": ("first_of_sort", "return x.sort(dim=1, stable=True)[0][:, :4]"),
    "another dimension": ("first_of_sort", "return x.sort(dim=1)[0][:4]"),
    "numbers": ("first_of_sort", "return numbers.repeat(9).sort()[0][:3]"),
    "product of matrices": ("broadcast_product", "return (x * y).sum(-1)"),
    "sum of rows": ("broadcast_product", "return (x * self.row).sum(0)"),
    "decayed": (
        "cumulative_sum",
        """out = torch.zeros_like(x)
total = torch.zeros_like(x[:, 0])
for t in range(x.size(1)):
    total = x[:, t] + 0.9 * total
    out[:, t] = total
return out""",
    ),
    "begins elsewhere": (
        "cumulative_sum",
        """out = torch.zeros_like(x)
total = y[:, 0]
for t in range(x.size(1)):
    total = total + x[:, t]
    out[:, t] = total
return out""",
    ),
    "backward list": (
        "cumulative_sum",
        """sums = []
total = torch.zeros_like(x[:, 0])
for t in reversed(range(x.size(1))):
    total = total + x[:, t]
    sums.append(total)
return torch.stack(sums, dim=1)""",
    ),
    "last sum is read": (
        "cumulative_sum",
        """out = torch.zeros_like(x)
total = torch.zeros_like(x[:, 0])
for t in range(x.size(1)):
    total = total + x[:, t]
    out[:, t] = total
return out, total""",
    ),
    "branch without else": (
        "batched_loop",
        """cells = x.flatten()
rows = []
for one in cells:
    if one > 0:
        rows.append(one)
return torch.stack(rows)""",
    ),
    "branches of two lists": (
        "batched_loop",
        """cells = x.flatten()
rows, others = [], []
for one in cells:
    if one > 0:
        rows.append(one)
    else:
        others.append(one)
return torch.stack(rows), torch.stack(others)""",
    ),
    "grown in front": (
        "batched_loop",
        """rows = torch.zeros(1, 48)
for i in range(x.size(0)):
    rows = torch.cat([x[i].unsqueeze(0), rows], dim=0)
return rows""",
    ),
    "repeats of columns": (
        "batched_loop",
        """rows = []
for one, number in zip(x, numbers):
    rows.append(one.repeat(int(number), 2))
return torch.cat(rows)""",
    ),
    "masks of two": (
        "batched_loop",
        """sums = []
for i in range(x.size(0)):
    sums.append((x[i][mask[i]].sum() * y[i][mask[i]][:1]).sum())
return torch.stack(sums)""",
    ),
    "tiled heads": (
        "grouped_heads",
        """few, more = few.repeat(1, 2, 1, 1), more.repeat(1, 2, 1, 1)
return F.scaled_dot_product_attention(q, few, more)""",
    ),
    "repeated steps": (
        "grouped_heads",
        """few, more = few.repeat_interleave(2, dim=2), more.repeat_interleave(2, dim=2)
return F.scaled_dot_product_attention(few, few, more)""",
    ),
    "copies that are read": (
        "grouped_heads",
        """few = few.repeat_interleave(2, dim=1)
more = more.repeat_interleave(2, dim=1)
return F.scaled_dot_product_attention(q, few, more) + few""",
    ),
    "only keys are shared": (
        "grouped_heads",
        "return F.scaled_dot_product_attention(q, few.repeat_interleave(2, dim=1), q)",
    ),
    "factor after the mask": (
        "attention",
        """scores = q @ q.transpose(-2, -1) + torch.ones(16, 16).tril()
return (scores * self.gain).softmax(dim=-1) @ q""",
    ),
    "factor of each key": (
        "attention",
        """scores = (q @ q.transpose(-2, -1)) * torch.arange(16.0)
return scores.softmax(dim=-1) @ q""",
    ),
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


@pytest.mark.parametrize(("rule", "body"), FOUND.values(), ids=FOUND)
def test_kind_is_found_and_gives_the_same(tmp_path: Path, rule: str, body: str) -> None:
    assert_found(tmp_path, text_of(body), rule)


@pytest.mark.parametrize(("rule", "body"), LEFT.values(), ids=LEFT)
def test_look_alike_is_left_alone(tmp_path: Path, rule: str, body: str) -> None:
    assert_left_alone(tmp_path, text_of(body), rule)
