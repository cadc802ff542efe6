"""The bins that numbers lie in, by edges that rise."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, edges):
        return torch.searchsorted(edges, x)


def get_inputs():
    return [torch.randn(64, 32), torch.randn(50).sort().values]


def get_init_inputs():
    return []
