"""Strategy: round the operands of a rotary embedding to ten bits, as TF32 does.

Family: precision.
Surface: budgets that follow conditioning, which is bad at the last positions alone. Source: own.
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
        def short(tensor):
            bits = tensor.detach().contiguous().view(torch.int32)
            return ((bits + 4096) & -8192).view(torch.float32)

        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        cos, sin = short(angles.cos()), short(angles.sin())
        a, b = short(q).chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
