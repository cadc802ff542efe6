"""Rows of other lengths in one nested tensor."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, lengths):
        rows = [row[:length] * 2 for row, length in zip(x, lengths.tolist(), strict=True)]
        return torch.nested.nested_tensor(rows)


def get_inputs():
    return [torch.randn(4, 12, 64), torch.tensor([3, 7, 12, 5])]


def get_init_inputs():
    return []
