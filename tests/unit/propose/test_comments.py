"""Comments between the statements that a rewrite takes out stand above what took their place."""

from __future__ import annotations

import pytest
import torch

from tests.unit.propose.test_rewrites import function, module, outputs, randn, rewritten

QKV = [randn(2, 3, 5, 4), randn(2, 3, 5, 4).flip(2), randn(2, 3, 5, 4) * 2]

KEPT = {
    "between statements": (
        "sdpa",
        """
T = q.shape[2]

# causal self-attention
att = (q @ k.transpose(-2, -1)) * 0.5  # (B, H, T, T)

# hide what comes later
# (but for the query's own place)
att = att.masked_fill(torch.triu(torch.ones(T, T), diagonal=1).bool(), float("-inf"))
att = F.softmax(att, dim=-1)

# weigh the values
y = att @ v  # (B, H, T, D)
# put the heads together
return y.transpose(1, 2)
""",
        """
# causal self-attention
# hide what comes later
# (but for the query's own place)
# weigh the values
y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)  # (B, H, T, D)
# put the heads together
return y.transpose(1, 2)
""",
    ),
    "before a branch that reads them": (
        "sdpa",
        """
# scores
att = (q @ k.transpose(-2, -1)) * 0.5
n = q.shape[2]

if n > 1:
    # over the keys
    att = F.softmax(att, dim=-1)
    y = att @ v
else:
    # one key
    y = v
return y
""",
        """
n = q.shape[2]

if n > 1:
    # scores
    # over the keys
    y = F.scaled_dot_product_attention(q, k, v, scale=0.5)
else:
    # one key
    y = v
return y
""",
    ),
    "within an expression": (
        "silu",
        """
# gated
y = (
    torch.sigmoid(q)
    # by itself
    * q  # twice
)
return y
""",
        """
# gated
# by itself
y = F.silu(q)
return y
""",
    ),
    "of steps that assign one name": (
        "sum_through_product",
        """
# a
q = q @ k.transpose(-2, -1)
# b
q = q * 2
# c
q = q.sum(-1)
return q
""",
        """
# a
# b
# c
q = torch.matmul(q, k.transpose(-2, -1).sum(-1, keepdim=True)).squeeze(-1) * 2
return q
""",
    ),
    "of an operation that did nothing, which go with it": (
        "identity_arithmetic",
        """
# no scale
q = q * 1.0
# but here
return q.exp() * 1.0
""",
        """
# but here
return q.exp()
""",
    ),
}


@pytest.mark.parametrize(("name", "before", "after"), KEPT.values(), ids=KEPT)
def test_comments_stay(name, before, after):
    source = function(before.strip(), "q, k, v")
    new = rewritten(source, name)
    assert new == function(after.strip(), "q, k, v")
    for found, expected in zip(outputs(new, QKV), outputs(source, QKV), strict=True):
        torch.testing.assert_close(found, expected)


def test_comments_of_a_table_stand_where_it_is_read():
    source = module(
        "self.fc = nn.Linear(8, 8)",
        """
x = self.fc(x)
# every second one
mask = torch.arange(8) % 2 == 0
# is left out
return x.masked_fill(mask, 0.0)
""",
    )
    new = rewritten(source, "hoist_table")
    assert new is not None
    assert (
        "        # every second one\n        # is left out\n"
        "        return x.masked_fill(self._table, 0.0)"
    ) in new
    x = randn(3, 8)
    assert torch.equal(outputs(new, [x])[0], outputs(source, [x])[0])
