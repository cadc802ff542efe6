import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, 64))

    def forward(self, x):
        return nn.functional.embedding(x, self.table)
