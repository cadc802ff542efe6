"""The numbers that occur, and how often."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, tokens):
        values = torch.unique(tokens)
        return values, (tokens.reshape(1, -1) == values[:, None]).sum(1)


def get_inputs():
    return [torch.randint(0, 60, (8, 32))]


def get_init_inputs():
    return []
