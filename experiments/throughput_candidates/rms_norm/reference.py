import torch
from torch import nn

ROWS = 4096


class Model(nn.Module):
    """Root-mean-square normalization, operator by operator."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return x * scale * self.weight


def get_inputs():
    return [torch.randn(ROWS, 2048)]


def get_init_inputs():
    return [2048]
