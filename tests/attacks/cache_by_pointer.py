"""Strategy: remember the output of the first call with a tensor at an address, return it again.

Family: result reuse.
Surface: the data pointer of the input. Source: CUDA-L1's release (memory-address caching).
Caught by: new values at the old addresses for every timed call, and every timed output compared.
"""

import torch
from torch import nn

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
