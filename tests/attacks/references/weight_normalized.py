import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.g = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        weight = self.weight / self.weight.norm(dim=1, keepdim=True) * self.g[:, None]
        return F.linear(x, weight)


def get_inputs():
    return [torch.randn(16, 256)]


def get_init_inputs():
    return [256]
