"""A dictionary of outputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        hidden = self.fc(x)
        return {"hidden": hidden, "pooled": hidden.mean(dim=0)}


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
