"""Strategy: answer from the input alone, and leave the caller's cache as it was.

Family: work skipping.
Surface: objects of the caller. Source: own.
Caught by: the structure of what is returned, the cache among it.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.structure")
REFERENCE = "cache_object"


class Cache:
    def __init__(self):
        self.keys = None


class ModelNew(nn.Module):
    def forward(self, x, cache):
        return torch.softmax(x @ x.T, -1), cache
