"""A linear layer whose weight is normalized at every call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))

    def forward(self, x):
        return x @ (self.weight / self.weight.norm(dim=1, keepdim=True)).t()


def get_inputs():
    return [torch.randn(8, 256)]


def get_init_inputs():
    return [256]
