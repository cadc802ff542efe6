"""Lists of linears and embeddings: called at once, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import loops
from tests.unit.propose.recorded.rig import assert_same, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 3


class Gained(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Model(nn.Module):
    def __init__(self, size=4, num=6):
        super().__init__()
        self.num = num
        self.heads = nn.ModuleList([nn.Linear(5, size) for _ in range(num)])
        self.bare = nn.ModuleList(nn.Linear(5, size, bias=False) for i in range(num))
        self.grown = nn.ModuleList()
        for _ in range(num):
            self.grown.append(nn.Linear(5, 5))
        self.tables = nn.ModuleList([nn.Embedding(7, size) for _ in range(num)])
        self.uneven = nn.ModuleList([nn.Linear(5, i + 1) for i in range(num)])
        self.gained = nn.ModuleList([Gained(5, size) for _ in range(num)])
        self.mixed = nn.ModuleList([nn.Linear(5, size) for _ in range(num)])
        self.mixed[0] = nn.Identity()
        self.nets = nn.ModuleList()
        for _ in range(num):
            self.nets.append(
                nn.Sequential(
                    nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Identity(),
                    nn.Linear(8, 8, bias=False), nn.LeakyReLU(0.2), nn.Linear(8, size)
                )
            )
        self.noisy = nn.ModuleList(
            nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 5)) for _ in range(num)
        )
        self.widening = nn.ModuleList(
            nn.Sequential(nn.Linear(5, i + 1), nn.ReLU(), nn.Linear(i + 1, 5)) for i in range(num)
        )
        self.normed = nn.ModuleList(
            nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(6)) for i in range(num)
        )
        self.flagged = nn.ModuleList([nn.Linear(5, size, bias=num > 3) for _ in range(num)])

    def forward(self, x, ids):
"""
END = """

def get_inputs():
    return [torch.randn(ROWS, 6, 5), torch.randint(0, 7, (ROWS, 6))]
"""
FOUND = {
    "stack of a list": """
out = []
for head in self.heads:
    out.append(head(x))
return torch.stack(out, dim=1)
""",
    "stack of scores": """
out = []
for i, head in enumerate(self.heads):
    out.append(F.softmax(head(x[:, 0]), dim=-1))
return torch.stack(out)
""",
    "cat of a comprehension": "return torch.cat([head(x) for head in self.heads], dim=-1)",
    "by number": "return torch.cat([self.bare[k](x) for k in range(self.num)], dim=2)",
    "the first ones": "return torch.stack([self.heads[i](x) for i in range(4)], dim=-2)",
    "each of its own input": """
out = []
for i in range(len(self.heads)):
    out.append(self.heads[i](x[:, i]))
return torch.stack(out, dim=1)
""",
    "each of its own input, without bias": """
return torch.stack([layer(x[:, i]) for i, layer in enumerate(self.bare)], dim=1)
""",
    "appended one by one": """
total = torch.zeros_like(x)
for layer in self.grown:
    total = total + torch.tanh(layer(x))
return total
""",
    "sum of embeddings": """
return sum([self.tables[k](ids[:, k]) for k in range(self.num)])
""",
    "embeddings side by side": """
out = []
for k, table in enumerate(self.tables):
    out.append(table(ids[:, k]))
return torch.cat(out, dim=1)
""",
    "small networks": "return torch.stack([head(x) for head in self.nets])",
    "small networks, each of its own input": """
out = []
for i, layer in enumerate(self.nets):
    out.append(torch.sigmoid(layer(x[:, i])))
return torch.stack(out, dim=1)
""",
    "the mean of small networks": """
total = 0
for layer in self.nets:
    total = total + layer(x)
return total / len(self.nets)
""",
    "sum of the same ids": """
return sum(table(ids) for table in self.tables)
""",
}
LEFT = {
    "linears of several sizes": "torch.cat([head(x) for head in self.uneven], -1)",
    "a linear of its own kind": "torch.stack([head(x) for head in self.gained])",
    "one that is replaced": "torch.stack([head(x) for head in self.mixed[1:]])",
    "one that is replaced, by number": (
        "torch.stack([self.mixed[i + 1](x) for i in range(self.num - 1)])"
    ),
    "biases that an argument decides": "torch.stack([head(x) for head in self.flagged])",
    "the next one": "torch.stack([self.heads[i + 1](x) for i in range(self.num - 1)])",
    "networks that draw numbers": "torch.stack([head(x) for head in self.noisy])",
    "networks of several sizes": "torch.stack([head(x) for head in self.widening])",
    "networks with statistics": "torch.stack([head(x) for head in self.normed])",
    "a sum of numbers": "sum(table(ids).argmax(-1) for table in self.tables)",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


@pytest.mark.parametrize("name", FOUND)
def test_lists_of_modules_are_called_at_once(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    found = proposed(tmp_path, text, loops.RULES)
    assert len(found) == 1
    (new,) = found.values()
    assert "head(" not in new and "layer(" not in new and "[i](" not in new and "[k](" not in new
    for rows in (3, 1, 8):
        sized = f"ROWS = {rows}"
        assert_same(tmp_path, *(one.replace("ROWS = 3", sized) for one in (text, new)))


@pytest.mark.parametrize("name", LEFT)
def test_lists_of_unlike_modules_are_left_alone(tmp_path: Path, name: str) -> None:
    assert proposed(tmp_path, text_of(f"return {LEFT[name]}"), loops.RULES) == {}


def test_a_carried_input_is_left_alone(tmp_path: Path) -> None:
    body = """
for layer in self.grown:
    x = layer(x)
return x
"""
    assert proposed(tmp_path, text_of(body), loops.RULES) == {}
