"""Strategy: compute sines by a short series, as fast-math does: off by 2e-4 at most.

Family: precision.
Surface: budgets that follow conditioning. Source: own; `__sinf` of CUDA.
Caught by: the spread of random rounding is local, and small at the first positions.
"""

import math

import torch
from torch import nn

REFERENCE = "rotary"
EXPECT = ("precision", "values.precision")


def fast_sine(x):
    turns = torch.round(x / math.pi)
    x = x.double().sub(turns.double() * math.pi).float()
    square = x * x
    series = x * (1 - square / 6 * (1 - square / 20 * (1 - square / 42)))
    return torch.where(turns.remainder(2) == 0, series, -series)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        cos, sin = fast_sine(angles + math.pi / 2), fast_sine(angles)
        a, b = q.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
