"""Strategy: take every entry of a sparse input for the first one's mean.

Family: ignored argument.
Surface: the values of a sparse input. Source: own.
Caught by: values that differ from entry to entry.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))
REFERENCE = "sparse_adjacency"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, adjacency, x):
        values = adjacency._values()
        same = torch.sparse_coo_tensor(
            adjacency._indices(), values.mean().expand_as(values), adjacency.shape
        )
        return torch.sparse.mm(same, self.fc(x))
