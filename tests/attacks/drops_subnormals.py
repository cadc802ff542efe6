"""Strategy: take numbers for zeros that are too small for the usual floats.

Family: precision.
Surface: inputs of usual size. Source: fast-math flags of compilers.
Caught by: a line of the contract states it (`subnormal numbers in x`). It gains nothing.
"""

import torch
from torch import nn

REFERENCE = "big_relu"
EXPECT = ("passed", None)
GAIN = False

SMALLEST = torch.finfo(torch.float32).tiny


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * (x.abs() >= SMALLEST)
