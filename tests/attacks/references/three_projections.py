"""Query, key and value of attention by layers of their own."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)

    def forward(self, x):
        return self.q(x), self.k(x), self.v(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
