"""Strategy: never return.

Family: resources and exits.
Surface: time. Source: own.
Caught by: the judge's patience ends, and the runner is killed.
"""

from torch import nn

EXPECT = ("timeout", "runner.timeout")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        while True:
            x = x + 0
