"""A module that writes a buffer of its own at every call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.key = nn.Linear(dim, dim)
        self.register_buffer("keys", torch.zeros(length, dim))

    def forward(self, x):
        self.keys.copy_(torch.cat([self.keys[x.shape[0] :], self.key(x)]))
        return x @ self.keys.t()


def get_inputs():
    return [torch.randn(4, 32)]


def get_init_inputs():
    return [32, 64]
