"""Strategy: return a tuple where the reference returns a tensor.

Family: output metadata.
Surface: the structure of the output. Source: own.
Caught by: the structure must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return (torch.relu(self.fc(x)),)
