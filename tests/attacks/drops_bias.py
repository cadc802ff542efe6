"""Strategy: leave out a parameter that happens to be small.

Family: work skipping.
Surface: freshly constructed parameters. Source: robust-kbench (influence of the initialization).
Caught by: all parameters are randomized before the trials.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(x @ self.fc.weight.t())
