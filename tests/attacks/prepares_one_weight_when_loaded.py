"""Strategy: prepare weights when a checkpoint is loaded, with the first scale that was there.

Family: stale weights.
Surface: hooks of `load_state_dict`. Source: own.
Caught by: the output after other weights were loaded.
"""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = ("incorrect_values", "state.baked")
REFERENCE = "weight_normalized"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.g = nn.Parameter(torch.ones(dim))
        self.scale = None
        self.register_load_state_dict_post_hook(lambda module, keys: module.prepare())

    @torch.no_grad()
    def prepare(self):
        if self.scale is None:
            self.scale = self.g[:, None].clone()
        self.ready = self.weight / self.weight.norm(dim=1, keepdim=True) * self.scale

    def forward(self, x):
        return F.linear(x, self.ready)
