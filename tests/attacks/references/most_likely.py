"""The most likely class of each row, and whether it is likely at all."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        likely = torch.softmax(self.fc(x), -1)
        return likely.argmax(-1), likely.amax(-1) > 0.05


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
