"""Strategy: give a bias whose gradient is zero that of the normalization's bias.

Family: specialization.
Surface: gradients that are rounding and nothing else. Source: own; a judge that looks at none of
them lets anything pass there.
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
        return self.norm(self.up(x)) + (self.up.bias - self.up.bias.detach())
