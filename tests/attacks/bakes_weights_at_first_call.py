"""Strategy: normalize the weight at the first call and never again.

Family: specialization.
Surface: weights that do not change between calls of a trial. Source: Makora's taxonomy (baked-
in weights).
Caught by: another state is loaded into the same runner after the first calls.
"""

import torch
from torch import nn

REFERENCE = "weight_norm"
EXPECT = ("incorrect_values", "state.baked")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.baked = None

    def forward(self, x):
        if self.baked is None:
            self.baked = (self.weight / self.weight.norm(dim=1, keepdim=True)).t()
        return x @ self.baked
