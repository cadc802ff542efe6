"""A product under autocast, and another with what the cast of the weights loses."""

import torch
from torch import nn

AUTOCAST = "bfloat16"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim) / dim**0.5)

    def forward(self, x):
        rest = self.weight - self.weight.bfloat16()
        return nn.functional.linear(x, self.weight) + nn.functional.linear(x, rest)


def get_init_inputs():
    return [256]


def get_inputs():
    return [torch.randn(256, 256)]
