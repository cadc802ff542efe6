import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.hd = heads, kv_heads, dim // heads
        self.q, self.k, self.v = (
            nn.Linear(dim, dim),
            nn.Linear(dim, kv_heads * self.hd),
            nn.Linear(dim, kv_heads * self.hd),
        )
        self.o = nn.Linear(dim, dim)

    def forward(self, x, attention_mask):
        b, n, c = x.shape
        q = self.q(x).view(b, n, self.heads, self.hd).transpose(1, 2)
        k = self.k(x).view(b, n, self.kv_heads, self.hd).transpose(1, 2)
        v = self.v(x).view(b, n, self.kv_heads, self.hd).transpose(1, 2)
        rep = self.heads // self.kv_heads
        k = (
            k[:, :, None]
            .expand(b, self.kv_heads, rep, n, self.hd)
            .reshape(b, self.heads, n, self.hd)
        )
        v = torch.repeat_interleave(v, rep, dim=1)
        mask = (
            torch.full((n, n), float("-inf"), device=x.device).triu(1)[None, None]
            + (1.0 - attention_mask[:, None, None, :]) * -1e9
        )
        w = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.hd) + mask
        w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o(torch.matmul(w, v).transpose(1, 2).reshape(b, n, c))


def get_init_inputs():
    return [1024, 16, 4]


def get_inputs():
    return [torch.randn(2, 1024, 1024), torch.ones(2, 1024)]
