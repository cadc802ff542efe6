"""A product with a table, which is returned beside it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("table", torch.hann_window(dim))
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x * self.table), self.table


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
