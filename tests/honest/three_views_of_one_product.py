"""Three outputs that are views of one result, where the reference computes three.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "three_projections"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)

    def forward(self, x):
        weight = torch.cat([self.q.weight, self.k.weight, self.v.weight])
        bias = torch.cat([self.q.bias, self.k.bias, self.v.bias])
        return nn.functional.linear(x, weight, bias).chunk(3, dim=-1)
