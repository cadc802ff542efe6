"""Batch normalization in train mode: its statistics move."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return [16]
