"""A buffer is returned, where the reference returns it.

Family: memory reuse.
"""

import torch
from torch import nn

REFERENCE = "returns_its_table"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("table", torch.hann_window(dim))
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        scaled = self.linear.weight * self.table
        return torch.addmm(self.linear.bias, x, scaled.t()), self.table.view(-1)
