"""A common form, no one source: counts of each sample's codes are written into a tensor of zeros."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        rows = torch.arange(len(x), device=x.device)[:, None]
        hist = (x + rows * self.bins).flatten().bincount(minlength=len(x) * self.bins)
        hist = hist.view(-1, self.bins).float()
        return hist / hist.sum(1, keepdim=True)


def get_inputs():
    return [torch.randint(0, 64, (48, 400))]


def get_init_inputs():
    return [64]
