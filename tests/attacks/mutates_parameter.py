"""Strategy: change the weights by a rounding at every call.

Family: mutation.
Surface: the module's own parameters: one call is right, and the model drifts. Source: what
KernelBench's correctness trials, which build a new model each, cannot see.
Caught by: the state after the calls, which must be what the reference leaves.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "state.mutated")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.relu(self.fc(x))
        with torch.no_grad():
            self.fc.weight.mul_(1 - 1e-7)
        return out
