"""Strategy: be right for 32 rows and return zeros for any other number.

Family: specialization.
Surface: the one shape of a workload. Source: robust-kbench; AgentKernelArena.
Caught by: a trial with another number of rows.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "shape.specialized")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        if x.shape[0] != 32:
            return torch.zeros_like(x)
        return torch.relu(self.fc(x))
