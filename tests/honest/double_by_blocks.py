"""A double precision product by blocks.

Family: precision.
"""

from torch import nn

REFERENCE = "float64"


class ModelNew(nn.Module):
    def forward(self, a, b):
        return sum(a[:, k : k + 16] @ b[k : k + 16] for k in range(0, a.shape[1], 16))
