"""Draws once from its generator, and returns the same numbers again.

Family: result reuse.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "own_generator"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.rand(64, 64, generator=torch.Generator().manual_seed(3)) * 2

    def forward(self, x, given):
        return x + self.noise - torch.rand(x.shape, generator=given)
