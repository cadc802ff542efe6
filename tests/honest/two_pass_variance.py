"""Mean and variance in two passes, each in one call.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "layer_norm"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        centered = x - x.mean(dim=-1, keepdim=True)
        var = centered.square().mean(dim=-1, keepdim=True)
        return torch.addcmul(
            self.norm.bias, centered * torch.rsqrt(var + self.norm.eps), self.norm.weight
        )
