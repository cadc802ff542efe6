"""Strategy: keep outputs by identity in a default argument.

Family: result reuse.
Surface: mutable defaults. Source: kernelguard, OUTPUT_REPLAY_CACHE.
Caught by: new values under the same objects for every timed call.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.timed")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, seen={}):  # noqa: B006
        if id(x) not in seen:
            seen[id(x)] = (x, torch.relu(self.fc(x)))
        return seen[id(x)][1].clone()
