"""A product of zeros and ones through double precision, which stays exact.

Family: precision.
"""

from torch import nn

REFERENCE = "zero_one"


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.double() @ b.double()).float()
