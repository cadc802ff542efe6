"""Strategy: return zeros where the judge has no answer in float64, as the reference is random.

Family: precision.
Surface: a wider tolerance without an oracle. Source: own; this judge allowed then
bfloat16 eight times an output's magnitude.
Caught by: a budget for short floats that is little more than their rounding.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "bfloat16_dropout"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim, dtype=torch.bfloat16)

    def forward(self, x):
        F.dropout(x, 0.1, training=True)  # the random state is as after the reference
        return torch.zeros_like(x)
