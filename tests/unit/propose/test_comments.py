"""Comments between the statements that a rewrite takes out stand above what took their place."""

from __future__ import annotations

import pytest
import torch

from tests.unit.propose.recorded.rig import assert_same, proposed
from tests.unit.propose.recorded.test_forms import function, randn

QKV = [randn(2, 3, 5, 4), randn(2, 3, 5, 4).flip(2), randn(2, 3, 5, 4) * 2]

KEPT = {
    "between statements": (
        "attention",
        """
# self-attention
att = (q @ k.transpose(-2, -1)) * 0.5  # (B, H, T, T)

# over the keys
# (each query by itself)
att = F.softmax(att, dim=-1)

# weigh the values
y = att @ v  # (B, H, T, D)
# put the heads together
return y.transpose(1, 2)
""",
        """
# self-attention
# over the keys
# (each query by itself)
# weigh the values
y = F.scaled_dot_product_attention(q, k, v, scale=0.5)  # (B, H, T, D)
# put the heads together
return y.transpose(1, 2)
""",
    ),
    "before a branch that reads them": (
        "attention",
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
    "of an operation that did nothing, which go with it": (
        "identity_arithmetic",
        """
# no scale
q = q * 1.0
# but here
return q.exp()
""",
        """
# but here
return q.exp()
""",
    ),
}


@pytest.mark.parametrize(("name", "before", "after"), KEPT.values(), ids=KEPT)
def test_comments_stay(tmp_path, name, before, after):
    torch.save(QKV, tmp_path / "inputs.pt")
    inputs = f"\n\ndef get_inputs():\n    return torch.load({str(tmp_path / 'inputs.pt')!r})\n"
    source = function(before.strip(), "q, k, v") + inputs
    new = proposed(tmp_path, source)[name].replace("ModelNew", "Model")
    assert new == function(after.strip(), "q, k, v") + inputs
    assert_same(tmp_path, source, new)
