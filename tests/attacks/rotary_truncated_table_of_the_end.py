"""Strategy: round the table of a rotary embedding to ten bits, at the last positions alone, where
rounding does most.

Family: precision.
Surface: budgets that follow conditioning, where it is worst. Source: own.
Caught by: the spread of random rounding is local; slow frequencies are well conditioned there too.
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
        def short(tensor):
            bits = tensor[1024:].contiguous().view(torch.int32)
            return torch.cat((tensor[:1024], ((bits + 4096) & -8192).view(torch.float32)))

        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        cos, sin = short(angles.cos()), short(angles.sin())
        a, b = q.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
