import torch
from torch import nn

ROWS = 4096


class Model(nn.Module):
    """Softmax over the last dimension, operator by operator."""

    def forward(self, x):
        powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return powers / powers.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(ROWS, 2048)]


def get_init_inputs():
    return []
