"""A chain of elementwise operations on half a million numbers."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x * 2 + 1) * x - torch.tanh(x) * 0.5


def get_inputs():
    return [torch.randn(1024, 512)]


def get_init_inputs():
    return []
