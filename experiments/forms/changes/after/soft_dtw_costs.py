"""After Maghoumi/pytorch-softdtw-cuda#23: all differences of frames are kept at once."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def costs(self, x, y):
        xx = x.square().sum(-1, keepdim=True)
        yy = y.square().sum(-1).unsqueeze(1)
        return torch.baddbmm(xx + yy, x, y.mT, alpha=-2).clamp(min=0)

    def forward(self, x, y):
        return torch.exp(-self.costs(x, y) / x.size(2))


def get_inputs():
    return [torch.randn(8, 96, 64), torch.randn(8, 80, 64)]


def get_init_inputs():
    return []
