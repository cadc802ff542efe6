"""A bias before a batch normalization in train mode: its gradient is zero but for rounding."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.norm = nn.BatchNorm1d(2 * dim)

    def forward(self, x):
        return self.norm(self.up(x))


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return [16]
