"""Sums of rows by a product with a one-hot matrix, and products that are others."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded.lookups import RULES
from tests.unit.propose.recorded.rig import assert_same, proposed

TEXT = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, num_segments):
        super().__init__()
        self.num_segments = num_segments

    def forward(self, x, index):
        {body}


def get_init_inputs():
    return [7]


def get_inputs():
    return [torch.randn(20, 5), torch.randint(0, 7, (20,))]
"""
HOT = "F.one_hot(index, self.num_segments)"


@pytest.mark.parametrize(
    "body",
    [
        f"hot = {HOT}.to(x.dtype)\n        return hot.t() @ x",
        f"hot = {HOT}.float()\n        return torch.mm(hot.transpose(0, 1), x)",
        f"return torch.matmul({HOT}.to(x).T, x * 2)",
    ],
)
def test_segments_are_added_by_index(tmp_path: Path, body: str) -> None:
    text = TEXT.format(body=body)
    changed = proposed(tmp_path, text, RULES)["segment_sums"]
    assert "index_add_(0, index, " in changed
    assert "one_hot" not in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    "body",
    [
        f"hot = {HOT}.to(x.dtype)\n        return hot.t() @ x, hot.sum(0)",
        f"return x.t() @ {HOT}.to(x.dtype)",
        f"hot = {HOT}.to(x.dtype)\n        return (hot * 2).t() @ x",
        f"hot = {HOT}.to(x.dtype)\n        return hot.t() @ x[:, 0]",
        "return F.one_hot(index).to(x.dtype).t() @ x",
    ],
)
def test_other_products_stay(tmp_path: Path, body: str) -> None:
    assert "segment_sums" not in proposed(tmp_path, TEXT.format(body=body), RULES)
