"""Rows that are copied before a linear, bags of embeddings, and diagonals: found or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.propose.recorded import rowwise
from tests.unit.propose.recorded.rig import (
    assert_found,
    assert_left_alone,
    assert_same,
    proposed,
)

RULES = rowwise.RULES
START = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, padding=None, bias=False):
        super().__init__()
        self.lin = nn.Linear(6, 5)
        self.pair = nn.Linear(12, 5)
        self.bare = nn.Linear(12, 5, bias=bias)
        self.a = nn.Parameter(torch.randn(12, 1))
        self.table = nn.Embedding(20, 6)
        self.padded = nn.Embedding(20, 6, padding_idx=padding)

    def pairs(self, x):
        n = x.size(0)
        return torch.cat([x.repeat_interleave(n, dim=0), x.repeat(n, 1)], dim=1).view(n, n, -1)

    def forward(self, x, y, source, tokens, z):
"""
END = """

def get_inputs():
    return [
        torch.randn(7, 6),
        torch.randn(5, 6),
        torch.randint(0, 7, (40,)),
        torch.randint(0, 20, (3, 9)),
        torch.randn(7, 6),
    ]
"""
FOUND = {
    "gathered": ("linear_before_gather", "return torch.relu(self.lin(x[source]))"),
    "gathered by two indices": (
        "linear_before_gather",
        """rows = x.index_select(0, source)
return self.lin(rows) + rows.sum()""",
    ),
    "gathered to a matrix": ("linear_before_gather", "return self.lin(x[source.view(8, 5)])"),
    "pairs of nodes": ("pairs_by_sum", "return self.pairs(x) @ self.a"),
    "pairs of nodes in one line": (
        "pairs_by_sum",
        """n = x.size(0)
both = torch.cat([x.repeat(1, n).view(n * n, -1), x.repeat(n, 1)], dim=1).view(n, -1, 12)
return F.leaky_relu(torch.matmul(both, self.a).squeeze(2))""",
    ),
    "pairs of two sets": (
        "pairs_by_sum",
        """n, m = x.size(0), y.size(0)
left = x.unsqueeze(1).expand(-1, m, -1)
right = y[None].repeat(n, 1, 1)
return torch.relu(self.pair(torch.cat((left, right), -1)))""",
    ),
    "pairs without a bias": (
        "pairs_by_sum",
        """left = x[:, None].expand(7, 5, 6)
right = y.unsqueeze(0).expand(7, -1, -1)
return self.bare(torch.cat([left, right], dim=2)) * 2""",
    ),
    "mean of tokens": ("embedding_bag", "return self.table(tokens).mean(dim=1)"),
    "sum of tokens": (
        "embedding_bag",
        """embedded = self.table(tokens)
return embedded.sum(1).tanh()""",
    ),
    "diagonal": ("diagonal_of_product", "return torch.diag(x @ z.T).exp()"),
    "diagonal of a longer product": (
        "diagonal_of_product",
        """scores = torch.diagonal(torch.matmul(x.tanh(), z.transpose(0, 1)))
return scores + 1""",
    ),
    "order turned back": (
        "inverse_permutation",
        """order = torch.argsort(x, dim=1)
return torch.argsort(order, dim=1)""",
    ),
    "ranks in one line": ("inverse_permutation", "return x.argsort(descending=True).argsort() + 1"),
    "ranks of one row": (
        "inverse_permutation",
        """_, order = x[:, 0].sort(descending=True)
return order.argsort()""",
    ),
}
LEFT = {
    "order along another dimension": (
        "inverse_permutation",
        "return x.argsort(dim=0).argsort(dim=1)",
    ),
    "part of an order": ("inverse_permutation", "return x.argsort(dim=1)[:, :3].argsort(dim=1)"),
    "order from the last": (
        "inverse_permutation",
        "return x.argsort(dim=1).argsort(dim=1, descending=True)",
    ),
    "sorted values": ("inverse_permutation", "return x.sort(dim=1).values.argsort(dim=1)"),
    "as many sources as rows": ("linear_before_gather", "return self.lin(x[source[:7]])"),
    "mask": ("linear_before_gather", "return self.lin(x[x[:, 0] > 0])"),
    "other rows": ("linear_before_gather", "return self.lin(x[source, :6])"),
    "joined rows of one size": ("pairs_by_sum", "return self.pair(torch.cat([x, z], dim=1))"),
    "both copied along the same dimension": (
        "pairs_by_sum",
        """left, right = x.unsqueeze(1).expand(-1, 5, -1), z.unsqueeze(1).expand(-1, 5, -1)
return self.pair(torch.cat([left, right], dim=-1))""",
    ),
    "pairs that are read": (
        "pairs_by_sum",
        """both = self.pairs(x)
return both @ self.a + both.sum()""",
    ),
    "rows joined one below the other": (
        "pairs_by_sum",
        """both = torch.cat([x.repeat_interleave(7, dim=0), x.repeat(7, 1)], dim=0)
return self.lin(both)""",
    ),
    "padding": ("embedding_bag", "return self.padded(tokens).mean(dim=1)"),
    "mean over the width": ("embedding_bag", "return self.table(tokens).mean(dim=2)"),
    "kept dimension": ("embedding_bag", "return self.table(tokens).mean(dim=1, keepdim=True)"),
    "embeddings that are read": (
        "embedding_bag",
        """embedded = self.table(tokens)
return embedded.mean(dim=1) + embedded[:, 0]""",
    ),
    "sorted tokens": ("embedding_bag", "return self.table(source).mean(dim=0)"),
    "second diagonal": ("diagonal_of_product", "return torch.diag(x @ z.T, 1)"),
    "product that is read": (
        "diagonal_of_product",
        """scores = x @ z.T
return torch.diag(scores) - scores.logsumexp(1)""",
    ),
    "another number of rows": ("diagonal_of_product", "return torch.diag(x @ y.T)"),
    "diagonal matrix": ("diagonal_of_product", "return torch.diag(x @ z[0])"),
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.splitlines()) + END


@pytest.mark.parametrize(("rule", "body"), FOUND.values(), ids=FOUND)
def test_rows_are_found_and_give_the_same(tmp_path: Path, rule: str, body: str) -> None:
    assert_found(tmp_path, text_of(body), rule)


@pytest.mark.parametrize(("rule", "body"), LEFT.values(), ids=LEFT)
def test_look_alike_is_left_alone(tmp_path: Path, rule: str, body: str) -> None:
    assert_left_alone(tmp_path, text_of(body), rule)


def test_diagonal_of_other_shapes_is_left_to_the_old_product(tmp_path: Path) -> None:
    text = text_of("return torch.diag(x @ z.T)")
    new = proposed(tmp_path, text, RULES)["diagonal_of_product"]
    fewer = "torch.randn(7, 6),\n    ]", "torch.randn(4, 6),\n    ]"
    assert_same(tmp_path, text.replace(*fewer), new.replace(*fewer))
