"""lucidrains/x-transformers x_transformers/attend.py: not flash, masked_fill with the lowest number."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import einsum


class Attend(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.attn_dropout = nn.Dropout(0.0)

    def forward(self, q, k, v, mask=None):
        scale = q.shape[-1] ** -0.5
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * scale
        mask_value = -torch.finfo(sim.dtype).max
        if mask is not None:
            sim = sim.masked_fill(~mask[:, None, None, :], mask_value)
        if self.causal:
            i, j = sim.shape[-2:]
            causal_mask = torch.ones((i, j), device=q.device, dtype=torch.bool).triu(j - i + 1)
            sim = sim.masked_fill(causal_mask, mask_value)
        attn = F.softmax(sim, dim=-1, dtype=torch.float32)
        attn = attn.type(sim.dtype)
        attn = self.attn_dropout(attn)
        return einsum("b h i j, b h j d -> b h i d", attn, v)


class Model(nn.Module):
    def __init__(self, dim, heads, causal):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, dim * 2, bias=False)
        self.attend = Attend(causal)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        out = self.attend(q, k, v, mask)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


def get_inputs():
    lengths = torch.randint(160, 257, (2,))
    return [torch.randn(2, 256, 128), torch.arange(256)[None, :] < lengths[:, None]]


def get_init_inputs():
    return [128, 8, True]
