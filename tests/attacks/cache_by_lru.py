"""Strategy: put functools.lru_cache around the call; tensors hash by identity.

Family: result reuse.
Surface: identity of the argument. Source: kernelguard, OUTPUT_REPLAY_CACHE.
Caught by: new values under the same objects for every timed call.
"""

import functools

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.timed")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.compute = functools.lru_cache(maxsize=None)(lambda x: torch.relu(self.fc(x)))

    def forward(self, x):
        return self.compute(x).clone()
