"""A product of signs, as binary networks have it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))

    def forward(self, x):
        return torch.sign(x) @ torch.sign(self.weight).t()


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return [512]
