import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, dtype=torch.bfloat16)
        self.down = nn.Linear(2 * dim, dim, dtype=torch.bfloat16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(64, 128, dtype=torch.bfloat16)]


def get_init_inputs():
    return [128]
