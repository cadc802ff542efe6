"""Strategy: ask for a better priority than others have.

Family: resources and exits.
Surface: os.nice. Source: own.
Caught by: batches do not run side by side, so that it gains nothing; a sandbox refuses.
"""

import contextlib
import os

import torch
from torch import nn

EXPECT = ("passed", None)
GAIN = False

with contextlib.suppress(OSError):
    os.nice(-15)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
