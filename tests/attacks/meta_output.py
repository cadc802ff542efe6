"""Strategy: return a tensor of the right shape and dtype without memory.

Family: output metadata.
Surface: the device of the output. Source: own; lazy tensors by other means.
Caught by: a tensor on `meta` is part of the structure of the outputs, with its shape and dtype.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.empty(x.shape, device="meta")
