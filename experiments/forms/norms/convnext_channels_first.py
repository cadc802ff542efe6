"""facebookresearch/ConvNeXt models/convnext.py: LayerNorm with data_format "channels_first"."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.data_format = data_format
        self.normalized_shape = (normalized_shape,)

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Model(nn.Module):
    def __init__(self, dim, out_dim):
        super().__init__()
        self.norm = LayerNorm(dim, data_format="channels_first")
        self.conv = nn.Conv2d(dim, out_dim, kernel_size=2, stride=2)

    def forward(self, x):
        return self.conv(self.norm(x))


def get_inputs():
    return [torch.randn(4, 64, 64, 64)]


def get_init_inputs():
    return [64, 8]
