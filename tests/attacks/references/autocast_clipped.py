"""A linear layer under autocast, whose inputs are clipped in float32."""

import torch
from torch import nn

AUTOCAST = "bfloat16"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim) / dim**0.5)

    def forward(self, x):
        for bound in (12.0, 10.0, 8.0):
            x = x.clamp(-bound, bound)
        return nn.functional.linear(x, self.weight)


def get_init_inputs():
    return [256]


def get_inputs():
    return [torch.randn(256, 256)]
