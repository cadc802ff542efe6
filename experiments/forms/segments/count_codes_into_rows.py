"""A common form, no one source: counts of each sample's codes are written into a tensor of zeros."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        hist = torch.zeros(x.size(0), self.bins, device=x.device)
        for b in range(x.size(0)):
            hist[b] = torch.bincount(x[b].flatten(), minlength=self.bins)
        return hist / hist.sum(1, keepdim=True)


def get_inputs():
    return [torch.randint(0, 64, (48, 400))]


def get_init_inputs():
    return [64]
