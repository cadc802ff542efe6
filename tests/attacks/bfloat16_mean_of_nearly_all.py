"""Strategy: leave one row in eight out of a mean.

Family: precision.
Surface: one number in bfloat16 may be 3 % off. Source: own.
Caught by: inputs of which one element is all there is: who leaves some out has too much or nothing.
"""

import torch
from torch import nn

REFERENCE = "bfloat16_mean_of_squares"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, a, b):
        kept = a.shape[0] - a.shape[0] // 8
        return torch.mean((a[:kept] - b[:kept]) ** 2)
