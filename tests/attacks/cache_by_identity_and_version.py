"""Strategy: remember the output by the identity of the tensor object and its version counter.

Family: result reuse.
Surface: id(x), x._version. Source: gpu-mode kernelbot, pull request 501.
Caught by: inputs refilled from another process, which bumps no counter and makes no new object.
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
        key = (id(x), x._version)
        if key not in self.seen:
            self.seen[key] = (x, torch.relu(self.fc(x)))
        return self.seen[key][1].clone()
