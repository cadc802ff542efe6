"""A layer whose weights are made by the first call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(48)

    def forward(self, x):
        return torch.relu(self.fc(x)) ** 2


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
