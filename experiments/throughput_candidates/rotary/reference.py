import torch
from torch import nn

ROWS = 2048


class Model(nn.Module):
    """Rotary position embedding, operator by operator."""

    def forward(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return x * cos + turned * sin


def get_inputs():
    angles = torch.rand(ROWS, 1, 128) * 6.2831853
    return [torch.randn(ROWS, 16, 128), torch.cos(angles), torch.sin(angles)]


def get_init_inputs():
    return []
