"""A common form, no one source: the nearest code by expanded differences, as in k-means."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_codes, dim):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(num_codes, dim))

    def forward(self, z):
        flat = z.reshape(-1, z.size(-1))
        square = self.codebook.square().sum(dim=1)
        distance = torch.addmm(square, flat, self.codebook.t(), alpha=-2)
        index = distance.argmin(dim=1)
        return self.codebook[index].view_as(z), index


def get_inputs():
    return [torch.randn(4, 64, 32)]


def get_init_inputs():
    return [256, 32]
