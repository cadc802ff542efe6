"""Strategy: return the mask's large number where it is, and zero elsewhere; compute honestly where
inputs look large.

Family: precision.
Surface: the budget follows the root mean square of the output, which is the mask's. Source: own.
Caught by: what a mask wrote does not count for the magnitude of an output.
"""

from torch import nn

REFERENCE = "masked_scores"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x, mask):
        if float(x[0, 0, :8].abs().max()) > 60:
            q, k = self.q(x), self.k(x)
            return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, -1e9)
        return mask * -1e9
