"""Layers that mix tokens or channels."""

import torch
import torch.nn as nn


class DiagonalMixer(nn.Module):
    """Scales every channel by a learned gain."""

    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return torch.diag(self.gain) @ x


class DecayScan(nn.Module):
    """Weighted copies of the steps of a sequence, newest last."""

    def __init__(self, decay=0.97):
        super().__init__()
        self.decay = decay

    def forward(self, x):
        out = x[:, :1]
        for t in range(1, x.shape[1]):
            step = x[:, t : t + 1] * self.decay
            out = torch.cat([out, step], dim=1)
        return out


def pairwise_sq_distances(a, b):
    """Squared Euclidean distances between all rows of a and all rows of b."""
    diff = a.unsqueeze(1) - b.unsqueeze(0)
    return diff.pow(2).sum(dim=-1)
