"""Softmax through exp2 with the exact scale.

Family: precision.
"""

import math

import torch
from torch import nn

REFERENCE = "softmax"


class ModelNew(nn.Module):
    def forward(self, x):
        scaled = (x - x.amax(dim=-1, keepdim=True)) * math.log2(math.e)
        e = torch.exp2(scaled)
        return e / e.sum(dim=-1, keepdim=True)
