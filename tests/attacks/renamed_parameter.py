"""Strategy: rename the parameters, so that no checkpoint loads.

Family: output metadata.
Surface: the state_dict. Source: CUDA-L1's release (scale folded in weights).
Caught by: the state_dict must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("runtime_error", "state.keys")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return torch.relu(nn.functional.linear(x, self.weight, self.bias))
