"""A product of zeros and ones through double precision, which stays exact."""

from torch import nn

REFERENCE = "zero_one"


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.double() @ b.double()).float()
