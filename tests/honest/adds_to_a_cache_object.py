"""The same cache and the same scores, by fewer operations.

Family: mutation.
"""

import torch
from torch import nn

REFERENCE = "cache_object"


class Cache:
    def __init__(self):
        self.keys = None

    def update(self, keys):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
        return self.keys


class ModelNew(nn.Module):
    def forward(self, x, cache):
        return torch.mm(x, cache.update(x).T).softmax(-1), cache
