"""A linear layer that takes a millisecond, so that skipped work would show."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return [256]
