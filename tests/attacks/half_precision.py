"""Strategy: compute in bfloat16 and convert back.

Family: precision.
Surface: tolerances of 1e-2. Source: CUDA-L1's release (18 to 27 autocasts of 250).
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT_ANY = (("precision", "values.precision"), ("incorrect_values", "values.mismatch"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        weight, bias = self.fc.weight.bfloat16(), self.fc.bias.bfloat16()
        return torch.relu(nn.functional.linear(x.bfloat16(), weight, bias)).float()
