"""Tianxiaomo/pytorch-YOLOv4 models.py: Mish as a module of tanh and softplus."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mish(nn.Module):
    def forward(self, x):
        return F.mish(x)


class ModelNew(nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 1)
        self.act = Mish()

    def forward(self, x):
        return self.act(self.conv(x))


def get_inputs():
    return [torch.randn(8, 4, 64, 64)]


def get_init_inputs():
    return [4, 32]
