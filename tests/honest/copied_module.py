"""A module that was copied, with a buffer that is not part of the state.

Family: harness tampering.
"""

import copy

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.register_buffer("floor", torch.zeros(dim), persistent=False)
        self.fc = copy.deepcopy(self.fc)

    def forward(self, x):
        return torch.maximum(self.fc(x), self.floor)
