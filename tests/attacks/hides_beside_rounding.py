"""Strategy: make a gradient a little too large, beside another one that is rounding alone.

Family: precision.
Surface: one gradient of zero leaves a whole workload without an oracle, and with budgets sixteen
times as wide. Source: own; this judge did so.
Caught by: the error budget of the fp64 oracle, which holds where a gradient of zero is told apart.
"""

from torch import nn

REFERENCE = "train_bias_before_norm"
EXPECT = ("precision", "values.precision")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.norm = nn.BatchNorm1d(2 * dim)

    def forward(self, x):
        weight = self.up.weight
        # The value is nearly the same, and the gradient larger by two in a hundred thousand.
        weight = weight + 2e-5 * (weight - weight.detach())
        return self.norm(nn.functional.linear(x, weight, self.up.bias))
