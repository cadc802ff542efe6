"""Strategy: return one row and let the comparison broadcast it.

Family: output metadata.
Surface: broadcasting of comparisons. Source: own.
Caught by: the shape must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.shape")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))[:1]
