"""Strategy: skip weights that are small.

Family: work skipping.
Surface: tolerances. Source: Makora's taxonomy (sparsity that is not there).
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
        weight = self.fc.weight
        return torch.relu(x @ (weight * (weight.abs() > 0.02)).t() + self.fc.bias)
