"""Both sides' vectors of a batch of matrices, whose signs nothing promises."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        return u, s, v


def get_inputs():
    return [torch.randn(4, 32, 8) * torch.linspace(1, 4, 8)]


def get_init_inputs():
    return []
