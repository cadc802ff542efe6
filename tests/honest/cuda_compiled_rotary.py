"""A rotary embedding that torch.compile fuses: other frequencies in the last place, which is 1e-4
of the largest angles.

Family: precision.
"""

import torch
from torch import nn

NEEDS = "cuda"
REFERENCE = "rotary"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.compiled = torch.compile(self.plain)

    def forward(self, q):
        return self.compiled(q)

    def plain(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        both = torch.cat((angles, angles), dim=-1)
        a, b = q.chunk(2, dim=-1)
        return q * both.cos() + torch.cat((-b, a), dim=-1) * both.sin()
