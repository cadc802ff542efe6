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


COUNTS = """index = {index}
        ones = {ones}
        count = {zeros}.scatter_add_(0, index, ones)
        return {result}"""
WIDE = {
    "index": "index.view(-1, 1).expand_as(x)",
    "ones": "torch.ones_like(x)",
    "zeros": "x.new_zeros(self.num_segments, x.size(1))",
    "result": "x.new_zeros(7, 5).scatter_add_(0, index, x) / count.clamp(min=1)",
}


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"index": "index.unsqueeze(-1).expand_as(x)", "result": "count + 1"},
        {"zeros": "x.new_zeros(self.num_segments, x.shape[-1])", "result": "1 / count"},
    ],
)
def test_rows_are_counted_once(tmp_path: Path, other: dict[str, str]) -> None:
    text = TEXT.format(body=COUNTS.format(**WIDE | other))
    changed = proposed(tmp_path, text, RULES)["counts_once"]
    assert "x.new_zeros(self.num_segments)" in changed
    assert "ones_like" not in changed
    assert_same(tmp_path, text, changed)


@pytest.mark.parametrize(
    "other",
    [
        {"ones": "torch.ones_like(x) * x"},
        {"ones": "torch.ones_like(x, dtype=torch.float32)"},
        {"index": "index.view(-1, self.num_segments - 6).expand_as(x)"},
        {"index": "(index.view(-1, 1) + torch.arange(5)) % 7"},
        {"index": "index.view(-1, 1).expand_as(x) * (x > 0)"},
        {"index": "index.repeat(5)[:5].expand_as(x)"},  # another one in each column
        {"zeros": "x.new_zeros(self.num_segments, 5)"},
        {"zeros": "x.new_zeros(self.num_segments, x.size(1)).add(1)"},
        {"result": "count"},
        {"result": "count.clamp_(min=1)"},
        {"result": "count[:, 0] + count[:, 1]"},
        {"result": "count + 1 if self.num_segments == 7 else count.add_(1)"},
        {"zeros": "x.new_zeros(7, x.size(1)) if x.dim() == 2 else x"},
    ],
)
def test_other_counts_stay(tmp_path: Path, other: dict[str, str]) -> None:
    text = TEXT.format(body=COUNTS.format(**WIDE | other))
    assert "counts_once" not in proposed(tmp_path, text, RULES)
