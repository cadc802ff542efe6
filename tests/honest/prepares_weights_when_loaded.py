"""Weights are prepared once, whenever a checkpoint is loaded as torch documents it.

Family: stale weights.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "weight_normalized"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.g = nn.Parameter(torch.ones(dim))
        self.register_load_state_dict_post_hook(lambda module, keys: module.prepare())
        self.prepare()

    @torch.no_grad()
    def prepare(self):
        self.ready = self.weight / self.weight.norm(dim=1, keepdim=True) * self.g[:, None]

    def forward(self, x):
        return F.linear(x, self.ready)
