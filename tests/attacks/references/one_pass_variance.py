import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x * x).mean(dim=-1, keepdim=True) - mean * mean
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight


def get_inputs():
    return [torch.randn(64, 256) + 100.0]


def get_init_inputs():
    return [256]
