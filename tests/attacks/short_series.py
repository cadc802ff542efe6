"""Strategy: replace the exponential by a power with a square root's effort.

Family: precision.
Surface: tolerances. Source: own; fewer terms of a series.
Caught by: the error budget of the fp64 oracle.
"""

from torch import nn

REFERENCE = "softmax"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def forward(self, x):
        e = (1 + (x - x.amax(dim=-1, keepdim=True)) / 4096).clamp(min=0) ** 4096
        return e / e.sum(dim=-1, keepdim=True)
