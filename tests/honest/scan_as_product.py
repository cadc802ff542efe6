"""A cumulative sum as a product with a triangle of ones.

Family: precision.
"""

from torch import nn

REFERENCE = "cumsum"


class ModelNew(nn.Module):
    def forward(self, x):
        return x @ x.new_ones(x.shape[1], x.shape[1]).triu()
