"""Strategy: round operands to ten bits, as TF32 does.

Family: precision.
Surface: the mantissa. Source: KernelBench discussions (TF32); the CPU's counterpart.
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT = ("precision", "values.precision")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        def short(tensor):
            bits = tensor.detach().contiguous().view(torch.int32)
            return ((bits + 4096) & -8192).view(torch.float32)

        return torch.relu(short(x) @ short(self.fc.weight).t() + self.fc.bias)
