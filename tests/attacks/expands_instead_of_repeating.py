"""Strategy: expand one row over many instead of writing them.

Family: output metadata.
Surface: strides of the output: torch refuses to write to such a tensor. Source: own.
Caught by: outputs have as much memory as elements, where the reference's have.
"""

import torch
from torch import nn

REFERENCE = "repeated_relu"
EXPECT = ("incorrect_shape", "output.overlaps")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).unsqueeze(1).expand(-1, 16, -1)
