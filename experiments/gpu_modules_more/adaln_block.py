import math

import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(dim, 3 * dim))
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, c):
        shift, scale, gate = self.ada(c).chunk(3, dim=1)
        h = self.fc1(modulate(self.norm(x), shift, scale))
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))))
        return x + gate.unsqueeze(1) * self.fc2(h)


def get_init_inputs():
    return [1152 // FACTOR]


def get_inputs():
    return [torch.randn(16, 256, 1152 // FACTOR), torch.randn(16, 1152 // FACTOR)]
