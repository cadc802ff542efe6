"""lucidrains/DALLE-pytorch dalle_pytorch/transformer.py: GEGLU, its gate with the formula written out."""

import math

import torch
import torch.nn as nn


class GEGLU(nn.Module):
    def forward(self, x):
        x, gates = x.chunk(2, dim=-1)
        return x * (0.5 * gates * (1 + torch.erf(gates / math.sqrt(2))))


class Model(nn.Module):
    def __init__(self, dim, mult):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, dim * mult * 2), GEGLU(), nn.Dropout(0.0), nn.Linear(dim * mult, dim)
        )

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.randn(4, 256, 32)]


def get_init_inputs():
    return [32, 16]
