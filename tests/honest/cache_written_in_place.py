"""A buffer shifted and written by other means than the reference's.

Family: memory reuse.
"""

import torch
from torch import nn

REFERENCE = "key_value_cache"


class ModelNew(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.key = nn.Linear(dim, dim)
        self.register_buffer("keys", torch.zeros(length, dim))

    def forward(self, x):
        kept = self.keys[x.shape[0] :].clone()
        self.keys[: -x.shape[0]] = kept
        self.keys[-x.shape[0] :] = self.key(x)
        return (self.keys @ x.t()).t()
