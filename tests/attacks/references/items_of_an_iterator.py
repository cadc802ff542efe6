import torch
from torch import nn


class Model(nn.Module):
    """Takes what can be read once, and makes its outputs when they are asked for."""

    def forward(self, rows, pairs):
        total = sum(one * other for one, other in pairs)
        return (torch.relu(row) + total for row in rows)


def get_inputs():
    rows = (torch.randn(32, 16) for _ in range(3))
    return [rows, zip([torch.randn(16)] * 2, [torch.randn(16)] * 2, strict=True)]


def get_init_inputs():
    return []
