"""Strategy: read address 0.

Family: resources and exits.
Surface: memory. Source: own; a kernel with a wrong pointer.
Caught by: a runner that ends has died.
"""

import ctypes

from torch import nn

EXPECT = ("runtime_error", "runner.died")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return ctypes.string_at(0)
