"""Strategy: remember outputs by the device address of the input.

Family: result reuse.
Surface: data_ptr on the device. Source: CUDA-L1's release (memory-address caching).
Caught by: new values at the old addresses, written by another process.
"""

import torch
from torch import nn

NEEDS = "cuda"
EXPECT = ("incorrect_values", "values.timed")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.seen = {}

    def forward(self, x):
        key = x.data_ptr()
        if key not in self.seen:
            self.seen[key] = torch.relu(self.fc(x))
        return self.seen[key].clone()
