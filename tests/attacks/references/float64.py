"""A product in double precision."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(48, 48).double(), torch.randn(48, 48).double()]


def get_init_inputs():
    return []
