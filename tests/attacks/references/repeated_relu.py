"""A ReLU of which every row is repeated."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).unsqueeze(1).repeat(1, 16, 1)


def get_inputs():
    return [torch.randn(32, 1024)]


def get_init_inputs():
    return []
