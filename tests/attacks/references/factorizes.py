"""Factors of positive matrices, which it refuses where a few elements have changed places."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a):
        return torch.linalg.cholesky(a)


def get_init_inputs():
    return []


def get_inputs():
    noise = torch.rand(64, 3, 3)
    return [noise + noise.mT + 20 * torch.eye(3)]
