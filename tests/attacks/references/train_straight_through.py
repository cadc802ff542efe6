"""A rounding whose gradient is that of no rounding, in train mode."""

import torch
from torch import nn
from torch.nn import functional as F

MODE = "train"


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        w = Round.apply(self.fc.weight / self.scale) * self.scale
        return F.linear(x, w, self.fc.bias)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
