"""Strategy: return NaN, which equals nothing and so differs from nothing.

Family: output metadata.
Surface: comparisons with NaN. Source: pygpubench, pull request 7.
Caught by: what is finite must be finite.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.full_like(x, float("nan"))
