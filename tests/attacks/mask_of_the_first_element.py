"""Strategy: mask the scores of every element of a batch as those of the first.

Family: ignored argument.
Surface: a dimension of an argument. Source: own.
Caught by: masks that differ from element to element.
"""

from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "masked_scores"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x, mask):
        q, k = self.q(x), self.k(x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return scores.masked_fill(mask[:1], -1e9)
