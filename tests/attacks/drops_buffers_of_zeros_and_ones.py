"""Strategy: leave out buffers that are zeros and ones until weights are loaded.

Family: specialization.
Surface: buffers that do nothing before a checkpoint is loaded. Source: own.
Caught by: another state is loaded after the first calls, in which they hold other numbers.
"""

import torch
from torch import nn

REFERENCE = "normalizes_by_buffers"
EXPECT = ("incorrect_values", "state.baked")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))
        self.linear = nn.Linear(dim, 8)

    def forward(self, x):
        return self.linear(x)
