"""A linear layer whose weight is masked by a sparse buffer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.register_buffer("mask", torch.eye(dim))

    def forward(self, x):
        return x @ (self.weight * self.mask).t()


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return [128]
