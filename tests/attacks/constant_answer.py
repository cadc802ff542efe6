"""Strategy: return zeros and hope for a loose tolerance.

Family: work skipping.
Surface: absolute tolerances. Source: KernelBench issue 165 (zeros pass 4 of 60 problems).
Caught by: tolerances follow the magnitude of the expected values.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.zeros_like(x)
