"""Position encodings."""

import math

import torch
import torch.nn as nn


class SinusoidalPositions(nn.Module):
    """Adds the sine and cosine table of "Attention is all you need"."""

    def __init__(self, dim, max_len=2048):
        super().__init__()
        self.dim = dim
        self.max_len = max_len

    def forward(self, x):
        T = x.shape[1]
        position = torch.arange(T, device=x.device).unsqueeze(1)
        freq = torch.exp(
            torch.arange(0, self.dim, 2, device=x.device) * (-math.log(10000.0) / self.dim)
        )
        table = torch.cat([torch.sin(position * freq), torch.cos(position * freq)], dim=-1)
        return x + table


class LearnedPositions(nn.Module):
    """A learned table."""

    def __init__(self, max_len, dim):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, dim) * 0.02)

    def forward(self, x):
        return x + self.table[: x.shape[1]]
