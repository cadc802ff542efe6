import torch
from torch import nn


class Cache:
    def __init__(self):
        self.keys = None

    def update(self, keys):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
        return self.keys


class Model(nn.Module):
    """Adds to an object of the caller's, and answers from all that it holds."""

    def forward(self, x, cache):
        scores = x @ cache.update(x).T
        return torch.softmax(scores, -1), cache


def get_inputs():
    return [torch.randn(8, 16), Cache()]


def get_init_inputs():
    return []
