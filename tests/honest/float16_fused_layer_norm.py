"""A fused layer normalization in float16, which holds squares that the reference does not.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "float16_layer_norm"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.float16))
        self.bias = nn.Parameter(torch.zeros(dim, dtype=torch.float16))

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)
