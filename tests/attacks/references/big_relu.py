"""One cheap pass over half a million numbers: copying the output costs as much."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(1024, 512)]


def get_init_inputs():
    return []
