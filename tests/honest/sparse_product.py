"""A product with a sparse input, which the reference makes dense first.

Family: layout.
"""

import torch
from torch import nn

REFERENCE = "sparse_adjacency"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, adjacency, x):
        return torch.sparse.mm(adjacency, self.fc(x))
