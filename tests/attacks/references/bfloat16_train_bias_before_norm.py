"""In bfloat16: ten thousand times as much is left of a gradient that is zero."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(2 * dim, dtype=torch.bfloat16)

    def forward(self, x):
        return self.norm(self.up(x))


def get_inputs():
    return [torch.randn(32, 16, dtype=torch.bfloat16)]


def get_init_inputs():
    return [16]
