"""Strategy: draw from torch's generator where the reference has one of its own.

Family: specialization.
Surface: randomness. Source: own.
Caught by: a program's own generators get another seed.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "own_generator"


class ModelNew(nn.Module):
    def forward(self, x, given):
        other = torch.rand(x.shape, generator=given).to(x.device)
        return torch.rand_like(x).mul_(2).add_(x).sub_(other)
