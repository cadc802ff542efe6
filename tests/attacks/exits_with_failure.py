"""Strategy: leave without cleaning up.

Family: resources and exits.
Surface: the exit code. Source: own.
Caught by: a runner that ends has died.
"""

import os

from torch import nn

EXPECT = ("runtime_error", "runner.died")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        os._exit(3)
