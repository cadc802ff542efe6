"""Attention in blocks with a running maximum and sum.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "attention"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        length, block = x.shape[1], 5
        best = x.new_full((*x.shape[:2], 1), float("-inf"))
        total, out = torch.zeros_like(best), torch.zeros_like(q)
        rows = torch.arange(length, device=x.device)[:, None]
        for start in range(0, length, block):
            scores = q @ k[:, start : start + block].transpose(1, 2) * q.shape[-1] ** -0.5
            columns = torch.arange(start, min(start + block, length), device=x.device)
            scores = scores.masked_fill(columns > rows, float("-inf"))
            new = torch.maximum(best, scores.amax(dim=-1, keepdim=True))
            weights, old = torch.exp(scores - new), torch.exp(best - new)
            total = total * old + weights.sum(dim=-1, keepdim=True)
            out = out * old + weights @ v[:, start : start + block]
            best = new
        return out / total
