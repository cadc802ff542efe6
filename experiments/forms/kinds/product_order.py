"""After lucidrains/linear-attention-transformer: with no softmax between them, keys and values are multiplied first."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = q.softmax(dim=-1), k.softmax(dim=-2)
        weights = q @ k.transpose(-2, -1)
        out = weights @ v
        return out.transpose(1, 2).reshape(batch, steps, width)


def get_inputs():
    return [torch.randn(2, 512, 64)]


def get_init_inputs():
    return [64, 4]
