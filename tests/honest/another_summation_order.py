"""The product in two halves: the same up to rounding.

Family: precision.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        half = x.shape[-1] // 2
        weight = self.fc.weight
        out = x[:, :half] @ weight[:, :half].t() + x[:, half:] @ weight[:, half:].t()
        return torch.relu(out + self.fc.bias)
