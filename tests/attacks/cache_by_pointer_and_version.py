"""Strategy: remember outputs by address, version counter and shape.

Family: result reuse.
Surface: data_ptr and _version. Source: gpu-mode kernelbot, pull request 501.
Caught by: inputs refilled from another process, which bumps no counter.
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
        key = (x.data_ptr(), x._version, x.shape)
        if key not in self.seen:
            self.seen[key] = torch.relu(self.fc(x))
        return self.seen[key].clone()
