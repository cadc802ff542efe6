"""Strategy: allocate more than there is.

Family: resources and exits.
Surface: memory. Source: own.
Caught by: a runner has a limit of memory.
"""

import torch
from torch import nn

EXPECT_ANY = (
    ("runtime_error", "memory.exhausted"),
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.hoard = []

    def forward(self, x):
        self.hoard.append(torch.empty(2**44))
        return torch.relu(self.fc(x))
