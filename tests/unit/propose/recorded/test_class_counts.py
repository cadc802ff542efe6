"""Loops that count the elements of each class: counted in one pass, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import class_counts
from tests.unit.propose.recorded.rig import outputs, proposed

START = """import torch
import torch.nn as nn

NUM, SHAPE = 6, (3, 40)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.num = NUM

    def forward(self, pred, target, scores):
        out = []
"""
END = """        return torch.tensor(out)


def get_inputs():
    pred, target = torch.randint(-1, NUM + 2, SHAPE), torch.randint(-2, NUM + 1, SHAPE)
    return [pred, target, torch.rand(SHAPE).mul(NUM).round()]
"""
INPUTS = {
    "one element": ("SHAPE = 6, (3, 40)", "SHAPE = 6, (1,)"),
    "few classes": ("NUM, SHAPE = 6,", "NUM, SHAPE = 2,"),
    "many classes": ("NUM, SHAPE = 6,", "NUM, SHAPE = 50,"),
    "broadcast": ("return [pred, target, ", "return [pred, target[0], "),
    "bytes": ("return [pred, target, ", "return [pred.abs().byte(), target.abs().byte(), "),
}
FOUND = {
    "intersection over union": """
for c in range(self.num):
    inter = ((pred == c) & (target == c)).sum().item()
    union = ((pred == c) | (c == target)).sum().item()
    out.append(inter / max(union, 1))
""",
    "masks by name": """
pred, target = pred.view(-1), target.flatten()
for cls in range(1, self.num):
    pred_inds = pred == cls
    target_inds = target == cls
    inter = pred_inds[target_inds].long().sum()
    union = pred_inds.long().sum() + torch.sum(target_inds) - inter
    if union == 0:
        out.append(-1.0)
    else:
        out.append((inter.float() / union).item())
""",
    "right and wrong ones": """
for c in range(self.num):
    hit = torch.logical_and(pred == c, target == c).float().sum()
    extra = torch.sum((pred == c) & (target != c)).float()
    missed = (~(pred == c) * (target == c)).sum()
    out.append(float(hit / (hit + extra + missed + 1e-6)))
""",
    "a comprehension": """
out = [(target == c).sum() for c in range(self.num)]
""",
    "as many classes as there are": """
self.num = 0
for c in range(int(target.max()) + 1):
    out.append((target == c).sum().item())
out.append(((pred == 1) & (target == 1)).sum().item())
""",
    "beneath a test": """
for c in range(self.num):
    here = target == c
    if here.sum() > 3:
        out.append(((pred == c) & here).sum().item())
    out.append((pred == c).to(torch.float32).sum().item())
""",
}
LEFT = {
    "of fractions": "out.append((scores == c).sum().item())",
    "of rows": "out.append((pred == c).sum(0).max().item())",
    "of another number": "out.append((pred == c + 1).sum().item())",
    "of what changes": "pred = pred + 1\n    out.append((pred == c).sum().item())",
    "of what is written": (
        "pred[0] = c\n    out.append((pred == c).sum().item())\n    out.append(c)"
    ),
    "of chosen elements": "out.append(((pred == c) & (scores > 1)).sum().item())",
    "less than": "out.append((pred < c).sum().item())",
    "of what is not there in each pass": (
        "if target is not None:\n        out.append((target == c).sum().item())"
    ),
    "on another device": "out.append((pred == c).to('cpu').sum().item())",
    "in half precision": "out.append((pred == c).half().sum().item())",
    "weighted": "out.append(((pred == c) * scores).sum().item())",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


@pytest.mark.parametrize("name", FOUND)
def test_classes_are_counted_at_once(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    new = proposed(tmp_path, text, class_counts.RULES)["class_counts"]
    assert "common = class_counts(" in new or "counts = class_counts(" in new
    assert " == c)" not in new.partition("forward")[2]
    for old, other in [("", ""), *INPUTS.values()]:
        if "view" in FOUND[name] and "target[0]" in other:
            continue
        for seed in range(3):
            torch.testing.assert_close(
                outputs(new.replace(old, other), tmp_path / "after.py", seed),
                outputs(text.replace(old, other), tmp_path / "again.py", seed),
            )


@pytest.mark.parametrize("name", LEFT)
def test_other_sums_are_left_alone(tmp_path: Path, name: str) -> None:
    text = text_of(f"for c in range(self.num):\n    {LEFT[name]}")
    assert proposed(tmp_path, text, class_counts.RULES) == {}


@pytest.mark.parametrize("over", ["range(3)", "(0, 1, 2, 3, 4)", "target.unique()", "range(-1, 5)"])
def test_other_loops_are_left_alone(tmp_path: Path, over: str) -> None:
    text = text_of(f"for c in {over}:\n    out.append((pred == c).sum().item())")
    assert proposed(tmp_path, text, class_counts.RULES) == {}
