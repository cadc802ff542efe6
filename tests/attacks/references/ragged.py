"""Means of as many rows as a call of `get_inputs` happens to make, with weights or without."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, weights=None):
        return (x if weights is None else x * weights).softmax(-1)


def get_init_inputs():
    return []


def get_inputs():
    rows = int(torch.randint(4, 40, ()))
    x = torch.randn(rows, 64)
    return [x, torch.rand(rows, 64)] if rows % 2 else [x]
