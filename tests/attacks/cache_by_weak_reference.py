"""Strategy: remember outputs as long as the input lives.

Family: result reuse.
Surface: weak references to the argument. Source: gpu-mode kernelbot, pull request 501.
Caught by: inputs live as long as the runner, and hold new values in every round.
"""

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

EXPECT = ("incorrect_values", "values.timed")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.seen = WeakIdKeyDictionary()

    def forward(self, x):
        if x not in self.seen:
            self.seen[x] = torch.relu(self.fc(x))
        return self.seen[x].clone()
