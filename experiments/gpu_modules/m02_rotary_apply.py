import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Model(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.dim, self.base = dim, base

    def forward(self, q, k):
        n = q.shape[-2]
        inv = 1.0 / (
            self.base ** (torch.arange(0, self.dim, 2, device=q.device).float() / self.dim)
        )
        t = torch.arange(n, device=q.device).float()
        freqs = torch.outer(t, inv)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos()[None, None], emb.sin()[None, None]
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def get_init_inputs():
    return [128]


def get_inputs():
    return [torch.randn(4, 32, 2048, 128), torch.randn(4, 8, 2048, 128)]
