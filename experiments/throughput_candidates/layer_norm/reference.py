import torch
from torch import nn

ROWS = 4096


class Model(nn.Module):
    """Layer normalization, operator by operator."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = centered.pow(2).mean(dim=-1, keepdim=True)
        return centered / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def get_inputs():
    return [torch.randn(ROWS, 2048)]


def get_init_inputs():
    return [2048]
