import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(4096, 4096) / 64)

    def forward(self, x):
        return x @ self.a
