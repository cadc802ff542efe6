"""A product, and beside it a table of positions: embeddings and distances, new at every call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.embedding = nn.Embedding(length, dim)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        bias = torch.exp(-(places[:, None] - places[None, :]).abs().float() / 8)
        return x * 2, self.embedding(places), bias


def get_inputs():
    return [torch.randn(8, 128)]


def get_init_inputs():
    return [128, 64]
