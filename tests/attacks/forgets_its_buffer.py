"""Strategy: answer from the cache without keeping the new keys.

Family: mutation.
Surface: state that outlives the call. Source: own; a key-value cache that is right once.
Caught by: the state after the calls, and calls after the first.
"""

import torch
from torch import nn

REFERENCE = "key_value_cache"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "state.values"))


class ModelNew(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.key = nn.Linear(dim, dim)
        self.register_buffer("keys", torch.zeros(length, dim))

    def forward(self, x):
        keys = torch.cat([self.keys[x.shape[0] :], self.key(x)])
        return x @ keys.t()
