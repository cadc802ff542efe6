"""Weighted sums of rows of a table; the last offset is where all end."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.bag = nn.EmbeddingBag(n, d, mode="sum", include_last_offset=True)

    def forward(self, ids, offsets, w):
        return self.bag(ids, offsets, per_sample_weights=w)


def get_inputs():
    return [torch.randint(0, 100, (200,)), torch.tensor([0, 10, 10, 60, 150, 200]), torch.rand(200)]


def get_init_inputs():
    return [100, 16]
