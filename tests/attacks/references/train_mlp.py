"""Two layers in train mode: gradients of inputs and parameters are compared."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
