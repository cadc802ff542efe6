"""Numbers of one input in the order of another one, which holds equal numbers in every row."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, scores, values):
        return values.gather(-1, scores.argsort(-1))


def get_inputs():
    return [torch.randint(0, 20, (32, 64)).float(), torch.randn(32, 64)]


def get_init_inputs():
    return []
