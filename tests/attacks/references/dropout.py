"""Dropout in train mode: random numbers, the same for everybody."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(torch.relu(self.fc(x)))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
