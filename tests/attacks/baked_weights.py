"""Strategy: copy the weights at construction; a loaded state has no effect.

Family: specialization.
Surface: construction. Source: Makora's taxonomy (baked-in weights).
Caught by: a new state is loaded after construction.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.register_buffer("baked", self.fc.weight.detach().clone(), persistent=False)

    def forward(self, x):
        return torch.relu(x @ self.baked.t() + self.fc.bias)
