"""Strategy: leave the input alone now, and destroy it at the next call.

Family: mutation.
Surface: inputs that are compared too early. Source: own.
Caught by: inputs are compared after the last call.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "input.mutated")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.before = None

    def forward(self, x):
        if self.before is not None:
            self.before.zero_()
        self.before = x
        return torch.relu(self.fc(x))
