"""After diegoantognini/pyGAT#63: the features of each pair of nodes are joined, then multiplied."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, hidden) * width**-0.5)
        self.a = nn.Parameter(torch.randn(2 * hidden, 1) * hidden**-0.5)
        self.hidden = hidden

    def pairs(self, h):
        n = h.size(0)
        each = h.repeat_interleave(n, dim=0)
        all_of_them = h.repeat(n, 1)
        joined = torch.cat([each, all_of_them], dim=1)
        return joined.view(n, n, 2 * self.hidden)

    def forward(self, x, adjacent):
        h = x @ self.weight
        scores = F.leaky_relu(torch.matmul(self.pairs(h), self.a).squeeze(2), 0.2)
        scores = torch.where(adjacent > 0, scores, -9e15 * torch.ones_like(scores))
        return F.softmax(scores, dim=1) @ h


def get_inputs():
    return [torch.randn(128, 32), (torch.rand(128, 128) > 0.7).float()]


def get_init_inputs():
    return [32, 32]
