"""After gram-ai/capsule-networks capsule_network.py: matrices of weights, broadcast to each sample, are multiplied with one vector each."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, capsules, routes, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(capsules, routes, width, out) * 0.1)

    def forward(self, x):
        priors = x[None, :, :, None, :] @ self.weight[:, None, :, :, :]
        shares = torch.softmax(torch.zeros_like(priors), dim=2)
        out = (shares * priors).sum(dim=2, keepdim=True)
        return out.squeeze(2).squeeze(2)


def get_inputs():
    return [torch.randn(32, 200, 8)]


def get_init_inputs():
    return [10, 200, 8, 16]
