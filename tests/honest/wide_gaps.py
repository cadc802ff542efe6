"""Outputs so far apart in memory that to copy them out takes longer than to copy the reference's,
which is no work that was put off.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "big_relu"
GAP = 16


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(*x.shape, GAP)[..., 0]
        out.copy_(torch.relu(x))
        return out
