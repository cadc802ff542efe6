"""Numbers stay on the device, loops read lists, and masks pick nothing out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudal1_ci.propose.recorded import picks, sync_loops, syncs, tables
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording, proposed

TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(()))
        self.kept, self.blank = [], 2

    def forward(self, x, y, mask, lengths, target):
        {code}


def get_inputs():
    lengths = torch.randint(1, 16, (8,))
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    return [x, y, torch.rand(8, 16) > 0.5, lengths, torch.randint(0, 16, (8,))]
"""
RULES = (*syncs.RULES, *sync_loops.RULES, *picks.RULES)
FOUND = {
    "return x / x.abs().max().item()": "return x / x.abs().max().detach()",
    "peak = float(x.max())\nreturn (x - peak) * peak": "peak = x.max().detach()",
    "n = mask.sum().item()\nreturn (x * mask).sum() / max(n, 1)": "/ n.clamp(min=1)",
    "return x.sum() / max(1, mask.sum().item())": "mask.sum().clamp(min=1)",
    "return x * self.scale.item()": "return x * self.scale.detach()",
    "return x.clamp(max=x.mean().item())": "x.clamp(max=x.mean().detach())",
    "return x.masked_fill(mask, x.min().item())": "x.masked_fill(mask, x.min().detach())",
    "return 2.0 / (x + y.mean().item())": "y.mean().detach()",
    "if mask.any():\n    x = x.masked_fill(mask, 0.0)\nreturn x": (
        "target):\n        x = x.masked_fill(mask, 0.0)"
    ),
    "rows = []\nfor i in range(x.size(0)):\n    n = lengths[i].item()\n"
    "    rows.append(x[i, :n].sum())\n"
    "return torch.stack(rows)": "n = lengths_list[i]",
    "return torch.stack([x[i, : lengths[i]].sum() for i in range(len(x))])": ": lengths_list[i]]",
    "rows = []\nfor row, n in zip(x, lengths):\n    rows.append(row[: int(n)].mean())\n"
    "return torch.stack(rows)": "zip(x, lengths.tolist())",
    "return x[mask].sum()": "torch.where(mask, x, 0).sum()",
    "return ((x[mask] - y[mask]) ** 2).mean()": "(x - y) ** 2, 0).sum() / mask.sum()",
    "p = x[mask]\nt = y[mask]\nreturn F.mse_loss(p, t)": 'reduction="none"',
    "d = (x[mask] - y[mask]).abs()\nreturn d.mean()": "d = (x - y).abs()",
    "keep = mask[:, 0]\nreturn F.cross_entropy(x[keep], target[keep])": (
        "F.cross_entropy(x, target.masked_fill(~keep, -100))"
    ),
    "cube = x.view(2, 4, 16)\nkeep, aim = mask[:, 0].view(2, 4), target.view(2, 4)\n"
    "return F.cross_entropy(cube[keep], aim[keep])": "cube.flatten(0, 1)",
}
FOUND |= {
    "best = x.view(8, 4, 4).argmax(-1)\nout = []\nfor b in range(best.size(0)):\n    last = -1\n"
    "    for t in range(best.size(1)):\n        k = best[b, t].item()\n"
    "        if k != last:\n            out.append(k)\n        last = k\n"
    "return torch.tensor(out)": "k = best_list[b][t]",
    "total = x[0, 0] * 0\nfor i in range(8):\n    for j in range(16):\n"
    "        if mask[i][j] and not mask[i, j - 1]:\n            total = total + x[i, j]\n"
    "return total": "if mask_list[i][j] and not mask_list[i][j - 1]:",
    "ids = torch.unique_consecutive(target)\nids = [i for i in ids if i != self.blank]\n"
    "return torch.stack([x[0, 0].long(), *ids])": "ids = list(ids[ids != self.blank])",
    "return len([n for n in lengths if n >= 3]) * x": "len(list(lengths[lengths >= 3]))",
    "count = 0\nfor i in range(len(target)):\n    if target[i] == lengths[i]:\n        count += 1\n"
    "return x * count": "if target_list[i] == lengths_list[i]:",
    "total = x[0, 0] * 0\nfor i in range(len(target)):\n    if target[i] != 3:\n"
    "        total = total + x[i, target[i]]\nreturn total": (
        "if target_list[i] != 3:\n                total = total + x[i, target_list[i]]"
    ),
}
FOUND["z = x + 0\nz[mask] = y[mask]\nreturn z"] = "z.copy_(torch.where(mask, y, z))"
LEFT = [
    "z = x + 0\nz[mask] = y[mask] * 2\nreturn z",
    "z = x + 0\nz[mask] = y[mask.flip(0)][: mask.sum()]\nreturn z",
    "z = x + 0\nz[mask[:, 0]] = y[mask[:, 0]]\nreturn z",  # a mask of rows
    "n = mask.sum().item()\nself.kept.append(n)\nreturn x / n",  # the number is kept
    "return x / (int(x.max()) + 1)",  # rounded
    "return torch.arange(lengths.max().item())",  # a size
    "return x.long() * x.max().item()",
    "n = x[0, 0].item()\nx = x + 0\nx[0, 0] = 5.0\nreturn x * n",  # written to in between
    "n = x.max().item()\nif self.training:\n    print(n)\nreturn x / n",
    "n = mask.sum().item()\nreturn lengths * float(n)",  # whole numbers would stay whole
    "if mask.any():\n    x = x.masked_fill(~mask, 0.0)\nreturn x",  # another mask
    "if mask.any():\n    x = x.masked_fill(mask, 0.0)\nelse:\n    x = x * 2\nreturn x",
    "if mask.any():\n    x = x.masked_fill(mask, 0.0)\nx += 1\nreturn x",  # would write to an input
    "if mask.any():\n    x = x * 2\nreturn x",
    "rows = []\nfor i in range(4):\n    rows.append(x[i, : lengths[i]].sum())\n"
    "    lengths = lengths + 1\n"
    "return torch.stack(rows)",
    "rows = []\nfor i in range(4):\n    rows.append(x[i, : lengths[i]].sum())\n"
    "    lengths[i + 1] = 3\n"
    "return torch.stack(rows)",
    "rows = []\nfor row, n in zip(x, lengths):\n    rows.append(row[: int(n)].mean() * n.float())\n"
    "return torch.stack(rows)",  # the tensor itself is read
    "count = 0\nfor i in range(8):\n    if x[i, 0] > 0.1:\n        count += 1\n"
    "return x * count",  # 0.1 is another number in float32
    "count = 0\nfor i in range(8):\n    if target[i] > 2.5:\n        count += 1\nreturn x * count",
    "found = []\nfor i in range(8):\n    found.append(target[i] == 3)\n"
    "return torch.stack(found)",  # no test
    "total = 0.0\nfor i in range(8):\n    total += x[i, 0].item()\n"
    "return y * total",  # one of 16 numbers
    "total = 0\nfor i in range(8):\n    if target[i] > 2:\n        total += 1\n"
    "    target = target + 1\nreturn x * total",
    "return len([n for n in lengths if n > 2.5]) * x",
    "return len([n for n in x[0] if n > 0]) * x",
    "return sum([n * 2 for n in lengths if n != 3]) * x",
    "return len([n for n in lengths if n not in self.kept + [3]]) * x",
    "self.kept = [3]\nreturn len([n for n in lengths if n in self.kept]) * x",
    "count = 0\nfor i in range(8):\n    if target[i] in {3, 4}:\n        count += 1\n"
    "return x * count",
    "ids = [n for n in lengths if n != 3]\nfor n in ids:\n    n += 1\nreturn x * sum(lengths)",
    "return len([n for n in lengths if n != target[0]]) * x",
    "return len([n for n in lengths if n != 3 and n != 4]) * x",
    "names = {0: 1}\nreturn x * sum(names.get(target[i], 2) for i in range(8))",
    "p = x[mask]\nreturn p.sum(), p",
    "p = x[mask]\nif self.training:\n    self.kept.append(p)\nreturn p.sum()",
    "return x[mask].max()",
    "return (x[mask] - y[~mask][: mask.sum()]).sum() if mask.sum() < 0 else x[mask].std()",
    "return x[mask[:, 0]].sum()",  # a mask of rows
    "keep = mask[:, 0]\nreturn F.cross_entropy(x[keep], target[keep], reduction='none')",
]


def text_of(code: str) -> str:
    return TEXT.replace("{code}", code.replace("\n", "\n        "))


@pytest.mark.parametrize("code", FOUND)
def test_sync_is_found(code: str, tmp_path: Path) -> None:
    text = text_of(code)
    [new] = proposed(tmp_path, text, RULES).values()
    assert FOUND[code] in new
    assert_same(tmp_path, text, new)


@pytest.mark.parametrize("code", LEFT)
def test_look_alike_is_left(code: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, text_of(code), RULES) == {}


def test_numbers_that_each_call_copies_to_a_gpu_are_kept(tmp_path: Path) -> None:
    code = "luma = torch.tensor([0.3, 0.6, 0.1]).to(x.device)\nreturn x[:, :3] * luma"
    code += " + x.exp().sin().cos().sum() + torch.linalg.inv(x @ x.T + torch.eye(8)).sum()"
    problem, recording = problem_and_recording(tmp_path, text_of(code))
    slow = msgspec.structs.replace(recording, total_us=1e6)
    values = tuple(msgspec.structs.replace(one, device="cuda") for one in slow.values)
    names = []
    for each in (slow, msgspec.structs.replace(slow, values=values)):
        rules = RecordedRewrites(rules=tables.RULES)
        found = rules.propose_recorded(problem, each, (), 9)
        names.append([one.proposer for one in found])
    assert names == [[], ["playbook:kept_table"]]


def test_products_are_not_masked_in_training(tmp_path: Path) -> None:
    """What the mask keeps out may be NaN, and the gradient of a product would be too."""
    steady = text_of("return (x[mask] - y[mask] * self.scale).sum()")
    assert proposed(tmp_path, steady, RULES, mode="train") == {}
    assert proposed(tmp_path, text_of("return (x[mask] - y[mask]).sum()"), RULES, mode="train")
