"""A convolution of a stream: each call begins with the end of the one before."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv = nn.Conv1d(c, c, k)
        self.register_buffer("left", torch.zeros(1, c, k - 1), persistent=False)

    def forward(self, x):
        x = torch.cat([self.left.expand(x.shape[0], -1, -1), x], -1)
        self.left = x[:1, :, -self.left.shape[-1] :].detach().clone()
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 8, 64)]


def get_init_inputs():
    return [8, 5]
