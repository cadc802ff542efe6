"""Masks of lengths that Python fills, and lists of lists that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded.masks import RULES
from tests.unit.propose.recorded.rig import assert_same, proposed

TEXT = """import torch
import torch.nn as nn


def mask_of(lengths, most):
    lengths = lengths.tolist()
    return {mask}


class Model(nn.Module):
    def forward(self, x, lengths):
        return mask_of(lengths, x.size(1))


def get_inputs():
    return [torch.randn(5, 9), torch.tensor([9, 1, 4, 0, 7])]
"""


@pytest.mark.parametrize(
    ("mask", "sign"),
    [
        ("torch.tensor([[0] * n + [1] * (most - n) for n in lengths]).bool()", ">="),
        ("torch.tensor([[1] * n + [0] * (max(lengths) - n) for n in lengths])", "<"),
        ("torch.tensor([[True] * n + [False] * (most - n) for n in lengths])", "<"),
        ("torch.tensor([[i < n for i in range(most)] for n in lengths])", "<"),
        ("torch.tensor([[n >= i for i in range(most)] for n in lengths])", "<="),
        ("torch.tensor([[int(i > n) for i in range(most)] for n in lengths])", ">"),
        (
            "torch.tensor([[0 if i < n else 1 for i in range(most)] for n in lengths], "
            "dtype=torch.float32)",
            ">=",
        ),
    ],
)
def test_masks_of_lengths_are_compared(tmp_path: Path, mask: str, sign: str) -> None:
    text = TEXT.format(mask=mask)
    changed = proposed(tmp_path, text, RULES)["length_mask"]
    assert f"{sign} torch.tensor(lengths)[:, None]" in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    "mask",
    [
        "torch.tensor([[i < n for i in range(x.size(1))] for n in lengths.tolist()])",
        "torch.tensor([[i < n for i in range(x.size(1))] for n in lengths])",
        "torch.tensor([[1] * n + [0] * (most - n) for n in lengths.tolist()])",
    ],
)
def test_lengths_may_be_in_a_tensor(tmp_path: Path, mask: str) -> None:
    text = TEXT.format(mask="0").replace("mask_of(lengths, x.size(1))", mask)
    text = text.replace("    def forward(self, x, lengths):\n", BODY)
    changed = proposed(tmp_path, text, RULES)["length_mask"]
    assert "< torch.tensor(lengths.tolist())[:, None]" in changed
    assert_same(tmp_path, text, changed)


def test_lengths_that_are_no_whole_numbers_stay(tmp_path: Path) -> None:
    mask = "torch.tensor([[i < n for i in range(x.size(1))] for n in (lengths * 1.0).tolist()])"
    text = TEXT.format(mask="0").replace("mask_of(lengths, x.size(1))", mask)
    assert proposed(tmp_path, text, RULES) == {}


BODY = """    def forward(self, x, lengths):
        most = x.size(1)
"""


@pytest.mark.parametrize(
    "mask",
    [
        "torch.tensor([[2] * n + [1] * (most - n) for n in lengths])",
        "torch.tensor([[1] * n + [0] * (most - n) for n in lengths if n >= 0])",
        "torch.tensor([[1] * (most - n) + [0] * n for n in lengths])",
        "torch.tensor([[1.0] * n + [0.0] * (most - n) for n in lengths])",
        "torch.tensor([[i < n for i in range(1, most)] for n in lengths])",
        "torch.tensor([[i == n for i in range(most)] for n in lengths])",
    ],
)
def test_other_lists_stay(tmp_path: Path, mask: str) -> None:
    assert proposed(tmp_path, TEXT.format(mask=mask), RULES) == {}


@pytest.mark.parametrize(
    ("rows", "mask", "sign"),
    [
        ("[[1 if j <= i else 0 for j in range(most)] for i in range(most)]", "rows", "<="),
        ("[[i < j for j in range(most)] for i in range(3)]", "rows", ">"),
        ("0", "[[0] * i + [1] * (most - i) for i in range(most)]", ">="),
    ],
)
def test_masks_of_steps_are_compared(tmp_path: Path, rows: str, mask: str, sign: str) -> None:
    text = TEXT.format(mask=f"torch.tensor({mask}).bool()")
    text = text.replace("    return torch", f"    rows = {rows}\n    return torch")
    changed = proposed(tmp_path, text, RULES)["length_mask"]
    assert f"{sign} torch.arange(" in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    "rows",
    [
        "[[j <= i for j in range(most)] for i in range(most)]\n    rows[0][1] = True",
        "[[j <= i for j in range(most)] for i in range(most)]\n    rows = rows[::-1]",
        "[[j <= i for j in range(most)] for i in range(1, most)]",
        "[[0] * i + [1] * (9 - i) for i in range(most)]",
        "[[j <= i + 1 for j in range(most)] for i in range(most)]",
    ],
)
def test_other_rows_stay(tmp_path: Path, rows: str) -> None:
    text = TEXT.format(mask="torch.tensor(rows)")
    text = text.replace("    return torch", f"    rows = {rows}\n    return torch")
    assert proposed(tmp_path, text, RULES) == {}
