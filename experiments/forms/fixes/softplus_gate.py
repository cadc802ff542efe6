"""A common form, no one source: a gated unit with the swish written out."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.a = nn.Linear(width, hidden)
        self.b = nn.Linear(width, hidden)

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        return a / (1 + torch.exp(-a)) * torch.sigmoid(b)


def get_inputs():
    return [torch.randn(1024, 32)]


def get_init_inputs():
    return [32, 512]
