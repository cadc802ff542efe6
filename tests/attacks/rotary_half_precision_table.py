"""Strategy: keep the table of a rotary embedding in float16.

Family: precision.
Surface: budgets that follow conditioning. Source: own.
Caught by: the spread of random rounding is local, and small at the first positions.
"""

import torch
from torch import nn

REFERENCE = "rotary"
EXPECT = ("precision", "values.precision")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        cos, sin = angles.cos().half().float(), angles.sin().half().float()
        a, b = q.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
