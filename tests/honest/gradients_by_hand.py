"""The same gradient by the rule of the chain.

Family: work skipping.
"""

import torch
from torch import nn

REFERENCE = "gradients_of_a_network"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        a, b = self.net[0], self.net[2]
        t = torch.tanh(a(x))
        return ((1 - t * t) * b.weight[0]) @ a.weight
