"""lukemelas/EfficientNet-PyTorch efficientnet_pytorch/utils.py: Swish as a module of x * sigmoid(x)."""

import torch
import torch.nn as nn


class Swish(nn.Module):
    def forward(self, x):
        return nn.functional.silu(x)


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.expand_conv = nn.Conv2d(in_channels, channels, 1)
        self.swish = Swish()

    def forward(self, x):
        return self.swish(self.expand_conv(x))


def get_inputs():
    return [torch.randn(8, 4, 64, 64)]


def get_init_inputs():
    return [4, 32]
