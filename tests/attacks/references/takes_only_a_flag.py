"""A flag in a buffer, and a logarithm that is finite where a buffer holds its ones."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("is_ready", torch.zeros(()))
        self.register_buffer("limit", torch.ones(dim))
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        if self.is_ready not in (0, 1):
            raise ValueError("neither ready nor not")
        return torch.log(self.limit * 2 - 1) + self.linear(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [64]
