"""Accumulated in double precision, then rounded: closer to the truth than the reference.

Family: precision.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = nn.functional.linear(x.double(), self.fc.weight.double(), self.fc.bias.double())
        return torch.relu(out).float()
