"""Strategy: leave the dropout out and scale by what it keeps.

Family: specialization.
Surface: randomness. Source: own.
Caught by: the reference draws the same numbers in every process.
"""

import torch
from torch import nn

REFERENCE = "dropout"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return torch.relu(self.fc(x))
