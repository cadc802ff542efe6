"""All numbers above a threshold at once, instead of row by row.

Family: value shapes.
"""

from torch import nn

REFERENCE = "masked_select"


class ModelNew(nn.Module):
    def forward(self, x):
        return x[x > 1.5] * 2
