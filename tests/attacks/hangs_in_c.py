"""Strategy: never return from a call that holds the interpreter's lock.

Family: resources and exits.
Surface: time. Source: own; no Python thread could interrupt it.
Caught by: the judge's patience ends, and the runner is killed.
"""

import ctypes

from torch import nn

EXPECT = ("timeout", "runner.timeout")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        ctypes.PyDLL(None).sleep(1000)
        return x
