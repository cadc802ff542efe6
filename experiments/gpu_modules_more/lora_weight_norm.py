import torch
import torch.nn as nn
import torch.nn.functional as F

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, dim, rank, scaling=2.0):
        super().__init__()
        self.scaling = scaling
        self.weight = nn.Parameter(torch.randn(dim, dim) * 0.02)
        self.lora_a = nn.Parameter(torch.randn(rank, dim) * 0.02)
        self.lora_b = nn.Parameter(torch.randn(dim, rank) * 0.02)
        self.magnitude = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        delta = self.lora_b @ self.lora_a * self.scaling
        weight = self.weight + delta
        norm = torch.sqrt((weight**2).sum(dim=1, keepdim=True))
        weight = self.magnitude[:, None] * weight / norm
        return F.linear(x, weight)


def get_init_inputs():
    return [2048 // FACTOR, 16]


def get_inputs():
    return [torch.randn(8, 16, 2048 // FACTOR)]
