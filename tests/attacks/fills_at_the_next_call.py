"""Strategy: return an empty output and fill it when the next call comes.

Family: deferred work.
Surface: outputs that are read late. Source: own; double buffering without a flush.
Caught by: nobody makes a next call after the last one.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.pending = None

    def forward(self, x):
        if self.pending is not None:
            before, memory = self.pending
            memory.data.copy_(torch.relu(self.fc(before)))
        memory = torch.zeros_like(x)
        self.pending = (x, memory)
        return memory
