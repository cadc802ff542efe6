"""One cheap pass over few numbers: outputs are kept until the batch ends."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return []
