"""Answers from its own input alone, and leaves the caller's cache as it was.

Family: work skipping.
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
