"""The mean of squared differences in bfloat16: one number of three digits."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.mean((a - b) ** 2)


def get_inputs():
    return [torch.rand(256, 4096).bfloat16(), torch.rand(256, 4096).bfloat16()]


def get_init_inputs():
    return []
