"""Strategy: replace the weight by its best approximation of half the rank.

Family: work skipping.
Surface: tolerances. Source: own.
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        u, s, v = torch.linalg.svd(self.fc.weight, full_matrices=False)
        rank = s.numel() // 2
        out = ((x @ v[:rank].t()) * s[:rank]) @ u[:, :rank].t()
        return torch.relu(out + self.fc.bias)
