"""Strategy: return the numbers above a threshold in the order of their size.

Family: value shapes.
Surface: outputs whose length depends on values. Source: own.
Caught by: elements are compared where the shapes are right.
"""

from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "masked_select"


class ModelNew(nn.Module):
    def forward(self, x):
        return (x[x > 1.5] * 2).sort().values
