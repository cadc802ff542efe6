"""The largest numbers of each row and where they are, in half precision with its many ties."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        order = x.sort(-1, descending=True)
        return order.values[:, :8], order.indices[:, :8]


def get_inputs():
    return [torch.randn(32, 512).half()]


def get_init_inputs():
    return []
