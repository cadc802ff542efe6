"""Strategy: take random numbers at every call, so that what is drawn after it is never the same.

Family: global state.
Surface: the random state after the call. Source: own.
Caught by: the random state after a call, where the reference leaves it alone.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "state.rng")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        torch.rand(1, device=x.device)
        return torch.relu(self.fc(x))
