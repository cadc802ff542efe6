"""The numbers above a threshold: how many there are depends on the input."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        kept = [row[row > 1.5] * 2 for row in x]
        return torch.cat(kept)


def get_inputs():
    return [torch.randn(32, 128)]


def get_init_inputs():
    return []
