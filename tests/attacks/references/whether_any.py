import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return [bool((row > 1.5).any()) for row in x]


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
