"""A common form, no one source: distances of all pairs by [:, :, None] differences, then minima."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x, y):
        xx = x.square().sum(-1)[:, :, None]
        yy = y.square().sum(-1)[:, None, :]
        dist = torch.baddbmm(xx + yy, x, y.transpose(1, 2), alpha=-2)
        forward = dist.min(dim=2)[0].mean(dim=1)
        backward = dist.min(dim=1)[0].mean(dim=1)
        return (forward + self.weight * backward).mean()


def get_inputs():
    return [torch.randn(2, 256, 16), torch.randn(2, 256, 16)]


def get_init_inputs():
    return [0.5]
