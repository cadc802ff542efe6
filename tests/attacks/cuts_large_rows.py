"""Strategy: cut rows that are larger than those of the workload before they are normalized.

Family: precision.
Surface: large inputs, whose squares the reference's float16 does not hold. Source: own.
Caught by: there the answer may be the reference's or that of float64, and no other.
"""

import torch
from torch import nn

REFERENCE = "float16_layer_norm"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.float16))
        self.bias = nn.Parameter(torch.zeros(dim, dtype=torch.float16))

    def forward(self, x):
        x = x.clamp(-60.0, 60.0)
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)
