"""lucidrains/vit-pytorch vit_pytorch/max_vit.py: einsum, softmax and dropout in a Sequential."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.attend = nn.Sequential(nn.Softmax(dim=-1), nn.Dropout(0.0))
        self.to_out = nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(0.0))

    def forward(self, x):
        b, n, _ = x.shape
        h = self.heads
        x = self.norm(x)
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, h, -1).transpose(1, 2), qkv)
        p = self.attend[1].p if self.training else 0.0
        out = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
        out = out.transpose(1, 2).reshape(b, n, -1)
        return self.to_out(out)


def get_inputs():
    return [torch.randn(2, 256, 96)]


def get_init_inputs():
    return [96, 8, 16]
