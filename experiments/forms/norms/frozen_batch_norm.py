"""facebookresearch/detr models/backbone.py: FrozenBatchNorm2d, scale and bias made at each call."""

import torch
import torch.nn as nn


class FrozenBatchNorm2d(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("weight", torch.rand(n) + 0.5)
        self.register_buffer("bias", torch.randn(n))
        self.register_buffer("running_mean", torch.randn(n))
        self.register_buffer("running_var", torch.rand(n) + 0.5)

    def forward(self, x):
        w = self.weight.reshape(1, -1, 1, 1)
        b = self.bias.reshape(1, -1, 1, 1)
        rv = self.running_var.reshape(1, -1, 1, 1)
        rm = self.running_mean.reshape(1, -1, 1, 1)
        eps = 1e-5
        scale = w * (rv + eps).rsqrt()
        bias = b - rm * scale
        return x * scale + bias


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bn1 = FrozenBatchNorm2d(n)

    def forward(self, x):
        return torch.relu(self.bn1(x))


def get_inputs():
    return [torch.randn(8, 64, 56, 56)]


def get_init_inputs():
    return [64]
