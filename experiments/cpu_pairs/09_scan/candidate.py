import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)
