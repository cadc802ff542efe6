"""After gram-ai/capsule-networks capsule_network.py: matrices of weights, broadcast to each sample, are multiplied with one vector each."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, capsules, routes, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(capsules, routes, width, out) * 0.1)

    def forward(self, x):
        priors = torch.einsum("bri,crio->cbro", x, self.weight)
        return priors.mean(dim=2)


def get_inputs():
    return [torch.randn(32, 200, 8)]


def get_init_inputs():
    return [10, 200, 8, 16]
