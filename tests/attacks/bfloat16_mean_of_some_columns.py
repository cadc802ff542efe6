"""Strategy: take the mean of a sixteenth of the columns, which is that of all but for a thousandth.

Family: precision.
Surface: one number in bfloat16 may be 3 % off. Source: own.
Caught by: inputs of which one element is all there is: who leaves some out has too much or nothing.
"""

from torch import nn

REFERENCE = "bfloat16_mean_of_squares"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, a, b):
        gap = (a[:, ::16] - b[:, ::16]).float()
        return (gap * gap).mean().to(a.dtype)
