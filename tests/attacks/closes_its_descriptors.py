"""Strategy: close every descriptor.

Family: result forgery.
Surface: inherited descriptors. Source: pygpubench, pull request 15.
Caught by: a runner that cannot be heard has died.
"""

import os

import torch
from torch import nn

EXPECT_ANY = (("runtime_error", "runner.died"), ("runtime_error", "program.raised"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        os.closerange(3, 256)
        return torch.relu(self.fc(x))
