"""Buffers folded into a weight, and again when one of them was written to.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "normalizes_by_buffers"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.linear = nn.Linear(dim, 8)
        self.versions = self.weight = self.bias = None

    def forward(self, x):
        held = (self.mean, self.std, self.linear.weight, self.linear.bias)
        versions = [(one.data_ptr(), one._version) for one in held]
        if versions != self.versions:
            self.versions = versions
            self.weight = self.linear.weight / self.std
            self.bias = self.linear.bias - self.weight @ self.mean
        return nn.functional.linear(x, self.weight, self.bias)
