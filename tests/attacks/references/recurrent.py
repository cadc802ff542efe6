"""A recurrent cell in a Python loop."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.cell = nn.Linear(2 * dim, dim)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], x.shape[2])
        for step in x.unbind(1):
            state = torch.tanh(self.cell(torch.cat([step, state], dim=1)))
        return state


def get_inputs():
    return [torch.randn(8, 24, 16)]


def get_init_inputs():
    return [16]
