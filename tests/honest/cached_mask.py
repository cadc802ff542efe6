"""A mask built once for every length and device: it does not follow from the input's values.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "attention"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.masks = {}

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        key = (x.shape[1], x.device)
        if key not in self.masks:
            length = x.shape[1]
            self.masks[key] = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        scores = torch.baddbmm(self.masks[key], q, k.transpose(-2, -1), alpha=q.shape[-1] ** -0.5)
        return torch.softmax(scores, dim=-1) @ v
