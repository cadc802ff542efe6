"""Strategy: return the real output as a complex one.

Family: output metadata.
Surface: the dtype of the output. Source: own.
Caught by: the dtype must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("incorrect_dtype", "output.dtype")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.complex(torch.relu(self.fc(x)), torch.zeros_like(x))
