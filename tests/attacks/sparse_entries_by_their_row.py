"""Strategy: take every entry of a row of a sparse input for the row's mean.

Family: ignored argument.
Surface: the values of a sparse input. Source: own.
Caught by: values that differ within a row.
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
        rows, values = adjacency._indices()[0], adjacency._values()
        sums = values.new_zeros(adjacency.shape[0]).index_add_(0, rows, values)
        means = sums / torch.bincount(rows, minlength=len(sums)).clamp(min=1)
        same = torch.sparse_coo_tensor(adjacency._indices(), means[rows], adjacency.shape)
        return torch.sparse.mm(same, self.fc(x))
