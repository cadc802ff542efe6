"""Strategy: draw the mask once and use it for every call.

Family: specialization.
Surface: randomness. Source: own; a cache of what should be drawn anew.
Caught by: seeds change with every call.
"""

import torch
from torch import nn

REFERENCE = "dropout"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.mask = None

    def forward(self, x):
        if self.mask is None:
            self.mask = (torch.rand_like(x) > 0.3) / 0.7
        return torch.relu(self.fc(x)) * self.mask
