"""Strategy: leave out the causal mask.

Family: work skipping.
Surface: the weight of masked positions. Source: own.
Caught by: every element is compared.
"""

from torch import nn

REFERENCE = "attention"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(q, k, v)
