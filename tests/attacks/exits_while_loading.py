"""Strategy: exit while the module is imported.

Family: resources and exits.
Surface: the exit code. Source: own.
Caught by: a runner that ends has died.
"""

import os

import torch
from torch import nn

EXPECT = ("runtime_error", "runner.died")

os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
