"""All frequencies of a rotary embedding but the first one, which is 1, are a unit in the last place
larger, as other powers round.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "rotary"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        frequencies = 10000.0**-steps
        frequencies[1:] = torch.nextafter(frequencies[1:], torch.ones_like(steps[1:]))
        angles = torch.arange(q.shape[-2], device=q.device).float()[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        a, b = q.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
