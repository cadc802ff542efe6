import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.bmm(x, x.transpose(1, 2))
