"""Counts and histograms of rows: made in one pass, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import loops
from tests.unit.propose.recorded.rig import outputs, proposed

START = """import torch
import torch.nn as nn

ROWS, STEPS, HIGH = 6, 40, 7


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.num = 7

    def forward(self, codes, x):
        out = []
        hist = torch.zeros(len(codes), self.num)
"""
END = """

def get_inputs():
    x = torch.cat([torch.rand(ROWS, STEPS) * 2 - 0.5, torch.linspace(0, 1, 8).expand(ROWS, 8)], 1)
    return [torch.randint(0, HIGH, (ROWS, STEPS)), x]
"""
INPUTS = {
    "as recorded": ("", ""),
    "one row": ("ROWS, STEPS, HIGH = 6, 40, 7", "ROWS, STEPS, HIGH = 1, 40, 7"),
    "empty rows": ("ROWS, STEPS, HIGH = 6, 40, 7", "ROWS, STEPS, HIGH = 6, 0, 7"),
    "few numbers": ("ROWS, STEPS, HIGH = 6, 40, 7", "ROWS, STEPS, HIGH = 6, 40, 2"),
    "greater numbers": ("ROWS, STEPS, HIGH = 6, 40, 7", "ROWS, STEPS, HIGH = 6, 400, 9"),
    "negative numbers": ("torch.randint(0, HIGH", "torch.randint(-1, HIGH"),
    "bytes": ("(ROWS, STEPS)), x]", "(ROWS, STEPS)).byte(), x]"),
    "double": ("(ROWS, STEPS)), x]", "(ROWS, STEPS)), x.double()]"),
    "not a number": (
        "    return [",
        "    x[:, 3] = float('nan'); x[:, 5] = float('inf')\n    return [",
    ),
}
FOUND = {
    "appended": """
for row in codes:
    out.append(torch.bincount(row, minlength=self.num))
return torch.stack(out)
""",
    "written": """
for i in range(codes.size(0)):
    hist[i] = codes[i].view(-1).bincount(minlength=7)
return hist / hist.sum(1, keepdim=True)
""",
    "of matrices": """
codes = codes.view(len(codes), 2, -1)
for i in range(len(codes)):
    out.append(torch.bincount(codes[i].flatten(), minlength=self.num).float())
return torch.stack(out)
""",
    "histograms": """
for i in range(len(x)):
    hist[i] = torch.histc(x[i], bins=self.num, min=0, max=1)
return hist
""",
    "histograms of wider ranges": """
for row in x:
    out.append(torch.histc(row * 3, 10, min=-1, max=4))
return torch.stack(out)
""",
}
LEFT = {
    "weighted": "out.append(torch.bincount(codes[i], x[i, :40], minlength=7))",
    "as many as there are": "out.append(torch.bincount(codes[i])[:2])",
    "between fractions": "out.append(torch.histc(x[i], 5, min=0.1, max=0.9))",
    "between the ends": "out.append(torch.histc(x[i], 5))",
    "of whole numbers": "out.append(torch.histc(x[i].half().float().mean(), 5, 0, 1))",
    "of what a pass writes": "codes[i, 0] = i\n    out.append(codes[i].bincount(minlength=7))",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def result(text: str, path: Path, seed: int) -> object:
    try:
        return outputs(text, path, seed)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("name", FOUND)
def test_rows_are_counted_in_one_pass(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    new = proposed(tmp_path, text, loops.RULES)["batched_loop"]
    assert ".bincount(minlength=len(" in " ".join(new.split()).replace("( ", "(")
    for old, other in INPUTS.values():
        for seed in range(3):
            found, wanted = (
                result(one.replace(old, other) if old else one, tmp_path / "one.py", seed)
                for one in (new, text)
            )
            if isinstance(wanted, str) or isinstance(found, str):
                assert found == wanted
            else:
                torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", LEFT)
def test_other_counts_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"for i in range(len(codes)):\n    {LEFT[name]}\nreturn torch.stack(out)"
    assert "batched_loop" not in proposed(tmp_path, text_of(body), loops.RULES)


def test_histograms_of_what_is_trained_are_left_alone(tmp_path: Path) -> None:
    text = text_of(FOUND["histograms"]).replace(
        "self.num = 7", "self.num = 7\n        self.w = nn.Parameter(torch.ones(1))"
    )
    text = text.replace(
        "for i in range(len(x)):", "x = x * self.w\n        for i in range(len(x)):"
    )
    assert "batched_loop" not in proposed(tmp_path, text, loops.RULES, "train")


def test_long_rows_are_left_alone_on_a_cpu(tmp_path: Path) -> None:
    text = text_of(FOUND["appended"]).replace("6, 40, 7", "6, 5000, 7")
    assert "batched_loop" not in proposed(tmp_path, text, loops.RULES)
