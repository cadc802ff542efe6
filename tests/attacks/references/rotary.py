"""A rotary embedding with angles up to 2,048: one unit in the last place of a frequency is 1e-4 of
an angle, and the source casts to float32."""

import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, q):
        steps = torch.arange(0, self.dim, 2, device=q.device).float() / self.dim
        angles = torch.outer(torch.arange(q.shape[-2], device=q.device).float(), 10000.0**-steps)
        both = torch.cat((angles, angles), dim=-1)
        return q * both.cos() + rotate_half(q) * both.sin()


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(2, 2048, 64)]
