"""The frequencies of a rotary embedding by an exponential, as a compiler writes them: other ones in
the last place, which is 1e-4 of the largest angles.

Family: precision.
"""

import math

import torch
from torch import nn

REFERENCE = "rotary"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device, dtype=torch.float32)
        frequencies = torch.exp2(steps * (-math.log2(10000.0) / self.dim))
        angles = torch.arange(q.shape[-2], device=q.device).float()[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        a, b = q.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
