"""A convolution with a bias before a batch normalization, and its gradient of zero."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * channels, 3)
        self.norm = nn.BatchNorm2d(2 * channels)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(8, 4, 12, 12)]


def get_init_inputs():
    return [4]
