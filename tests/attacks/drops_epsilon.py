"""Strategy: leave out the epsilon of a normalization.

Family: work skipping.
Surface: inputs with a variance. Source: own.
Caught by: a trial with zeros, whose variance is zero.
"""

from torch import nn

REFERENCE = "layer_norm"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        centered = x - x.mean(dim=-1, keepdim=True)
        out = centered / centered.square().mean(dim=-1, keepdim=True).sqrt()
        return out * self.norm.weight + self.norm.bias
