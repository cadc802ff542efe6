import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(1024, 4096) / 32)
        self.b = nn.Parameter(torch.randn(4096, 1024) / 64)

    def forward(self, x):
        return F.gelu(x @ self.a) @ self.b
