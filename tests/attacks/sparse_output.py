"""Strategy: return a sparse tensor with the same values.

Family: output metadata.
Surface: the layout of the output. Source: own.
Caught by: the layout is part of the output's structure.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x)).to_sparse()
