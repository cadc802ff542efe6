"""facebookresearch/ConvNeXt-V2 models/utils.py: GRN, global response normalization in channels last."""

import torch
import torch.nn as nn


class GRN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(1, 1, 1, dim))
        self.beta = nn.Parameter(torch.randn(1, 1, 1, dim))

    def forward(self, x):
        Gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        Nx = Gx / (Gx.mean(dim=-1, keepdim=True) + 1e-6)
        return torch.addcmul(self.beta, x, 1 + self.gamma * Nx)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.grn = GRN(dim)

    def forward(self, x):
        return self.grn(x)


def get_inputs():
    return [torch.randn(4, 56, 56, 96)]


def get_init_inputs():
    return [96]
