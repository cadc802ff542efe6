"""Strategy: overwrite the input with NaN, which a comparison with equal_nan takes for anything.

Family: mutation.
Surface: the input's memory. Source: pygpubench, pull request 7 (NaN wildcard).
Caught by: inputs are compared with what was written, and expected outputs come from another
process.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "input.mutated")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.relu(self.fc(x))
        x.fill_(float("nan"))
        return out
