"""Strategy: return everything a twentieth too large, where one rounding is nearly a hundredth.

Family: precision.
Surface: tolerances that are so many units of the dtype's epsilon. Source: own; this judge gave
bfloat16 what float32 needs for long sums: half of an output's magnitude.
Caught by: a budget for short floats that is little more than their rounding.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "bfloat16_mlp"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, dtype=torch.bfloat16)
        self.down = nn.Linear(2 * dim, dim, dtype=torch.bfloat16)

    def forward(self, x):
        return (x + self.down(F.gelu(self.up(x)))) * 1.05
