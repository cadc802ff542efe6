"""CompVis/latent-diffusion ldm/modules/attention.py: CrossAttention, heads folded into the batch."""

import torch
import torch.nn as nn
from torch import einsum


class Model(nn.Module):
    def __init__(self, query_dim, context_dim, heads, dim_head):
        super().__init__()
        inner_dim = dim_head * heads
        self.scale = dim_head**-0.5
        self.heads = heads
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, query_dim), nn.Dropout(0.0))

    def fold(self, t):
        b, n, _ = t.shape
        t = t.reshape(b, n, self.heads, -1).permute(0, 2, 1, 3)
        return t.reshape(b * self.heads, n, -1)

    def unfold(self, t):
        b, n, d = t.shape
        t = t.reshape(b // self.heads, self.heads, n, d).permute(0, 2, 1, 3)
        return t.reshape(b // self.heads, n, -1)

    def forward(self, x, context, mask=None):
        q = self.to_q(x)
        k = self.to_k(context)
        v = self.to_v(context)
        q, k, v = map(self.fold, (q, k, v))
        sim = einsum("b i d, b j d -> b i j", q, k) * self.scale
        if mask is not None:
            mask = mask.reshape(mask.shape[0], -1)
            max_neg_value = -torch.finfo(sim.dtype).max
            mask = mask[:, None].repeat(1, self.heads, 1).reshape(-1, 1, mask.shape[-1])
            sim.masked_fill_(~mask, max_neg_value)
        attn = sim.softmax(dim=-1)
        out = einsum("b i j, b j d -> b i d", attn, v)
        return self.to_out(self.unfold(out))


def get_inputs():
    return [torch.randn(2, 512, 96), torch.randn(2, 257, 64)]


def get_init_inputs():
    return [96, 64, 8, 16]
