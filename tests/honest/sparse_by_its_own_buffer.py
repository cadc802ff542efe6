"""Only the diagonal is used, as the module's own buffer says; the general way for another one.

Family: specialization.
"""

import torch
from torch import nn

REFERENCE = "banded"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.register_buffer("mask", torch.eye(dim))

    def forward(self, x):
        mask = self.mask
        if mask.count_nonzero() == mask.diagonal().count_nonzero():
            return x * (self.weight.diagonal() * mask.diagonal())
        return x @ (self.weight * mask).t()
