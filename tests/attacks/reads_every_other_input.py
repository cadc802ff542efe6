"""Strategy: compute every second call only and return the neighbor's output for the other.

Family: result reuse.
Surface: correlated successive inputs. Source: Makora's taxonomy (frame skipping).
Caught by: trials whose inputs have nothing in common.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.last, self.calls = None, 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 2 or self.last is None:
            self.last = torch.relu(self.fc(x))
        return self.last.clone()
