"""A common form, no one source: a map is doubled by repeating its rows, then its columns."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return F.interpolate(torch.relu(self.conv(x)), scale_factor=2, mode="nearest")


def get_inputs():
    return [torch.randn(4, 32, 32, 32)]


def get_init_inputs():
    return [32]
