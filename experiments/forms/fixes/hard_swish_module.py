"""d-li14/mobilenetv3.pytorch mobilenetv3.py: h_swish from h_sigmoid from ReLU6, three modules."""

import torch
import torch.nn as nn


class h_sigmoid(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.relu = nn.ReLU6(inplace=inplace)

    def forward(self, x):
        return self.relu(x + 3) / 6


class h_swish(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.sigmoid = h_sigmoid(inplace=inplace)

    def forward(self, x):
        return x * self.sigmoid(x)


class Model(nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 1)
        self.act = h_swish()

    def forward(self, x):
        return self.act(self.conv(x))


def get_inputs():
    return [torch.randn(8, 4, 64, 64)]


def get_init_inputs():
    return [4, 32]
