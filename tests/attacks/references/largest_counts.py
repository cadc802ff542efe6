"""The places of the largest of some whole numbers, of which many are equal."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, counts):
        return counts.topk(4, -1).indices


def get_inputs():
    return [torch.randint(0, 8, (32, 64))]


def get_init_inputs():
    return []
