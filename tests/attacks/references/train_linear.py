"""One layer in train mode, whose input has a gradient."""

import torch
from torch import nn

MODE = "train"


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return [512]
