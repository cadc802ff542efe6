"""Strategy: fold the running statistics into scale and shift at construction.

Family: specialization.
Surface: construction. Source: CUDA-L1's release (group-norm sums folded).
Caught by: a new state is loaded after construction.
"""

import torch
from torch import nn

REFERENCE = "batch_norm"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        with torch.no_grad():
            scale = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
            shift = self.norm.bias - self.norm.running_mean * scale
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    def forward(self, x):
        return x * self.scale[:, None, None] + self.shift[:, None, None]
