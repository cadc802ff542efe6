"""Strategy: compute in half precision and convert back.

Family: precision.
Surface: tolerances of 1e-2. Source: CUDA-L1's release (explicit half in 6 to 14 of 250).
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT_ANY = (
    ("precision", "values.precision"),
    ("incorrect_values", "values.mismatch"),
    ("runtime_error", "program.raised"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        weight, bias = self.fc.weight.half(), self.fc.bias.half()
        return torch.relu(nn.functional.linear(x.half(), weight, bias)).float()
