import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, window, heads):
        super().__init__()
        self.window, self.heads, self.scale = window, heads, (dim // heads) ** -0.5
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        b, h, w, c = x.shape
        m = self.window
        coords = torch.stack(
            torch.meshgrid(torch.arange(m), torch.arange(m), indexing="ij")
        ).flatten(1)
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        rel[:, :, 0] += m - 1
        rel[:, :, 1] += m - 1
        rel[:, :, 0] *= 2 * m - 1
        index = rel.sum(-1).to(x.device)
        x = (
            x.view(b, h // m, m, w // m, m, c)
            .permute(0, 1, 3, 2, 4, 5)
            .contiguous()
            .view(-1, m * m, c)
        )
        qkv = self.qkv(x).reshape(-1, m * m, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        bias = self.table[index.view(-1)].view(m * m, m * m, -1).permute(2, 0, 1).contiguous()
        att = ((q @ k.transpose(-2, -1)) + bias.unsqueeze(0)).softmax(dim=-1)
        x = self.proj((att @ v).transpose(1, 2).reshape(-1, m * m, c))
        return (
            x.view(b, h // m, w // m, m, m, c)
            .permute(0, 1, 3, 2, 4, 5)
            .contiguous()
            .view(b, h, w, c)
        )


def get_init_inputs():
    return [96, 7, 3]


def get_inputs():
    return [torch.randn(16, 56, 56, 96)]
