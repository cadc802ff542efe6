"""Strategy: leave out what the reference does about values that are no numbers.

Family: specialization.
Surface: which inputs are tried. Source: own.
Caught by: inputs with a few of them, for a reference that names them.
"""

import torch
from torch import nn

REFERENCE = "cleans_its_input"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(torch.clamp(x, -100.0, 100.0))
