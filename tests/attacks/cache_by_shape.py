"""Strategy: remember one output for every shape.

Family: result reuse.
Surface: the shape of the input. Source: kernelguard, SHAPE_OUTPUT_REPLAY.
Caught by: trials with other values of the same shape.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.seen = {}

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.seen:
            self.seen[key] = torch.relu(self.fc(x))
        return self.seen[key].clone()
