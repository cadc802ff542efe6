"""Strategy: compute a double precision product in single precision.

Family: precision.
Surface: tolerances. Source: own.
Caught by: the dtype's own error budget.
"""

from torch import nn

REFERENCE = "float64"
EXPECT_ANY = (("precision", "values.precision"),)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.float() @ b.float()).double()
