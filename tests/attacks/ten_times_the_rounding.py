"""Strategy: make a gradient that is zero in truth ten times as large as rounding leaves it.

Family: precision.
Surface: gradients that are rounding and nothing else. Source: own.
Caught by: what is zero in truth may be no larger than a few times the reference's own rounding.
"""

from torch import nn

REFERENCE = "train_bias_before_norm"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.norm = nn.BatchNorm1d(2 * dim)

    def forward(self, x):
        bias = self.up.bias
        tenfold = 10 * bias - 9 * bias.detach()
        return self.norm(nn.functional.linear(x, self.up.weight, tenfold))
