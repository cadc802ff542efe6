"""After pymc-devs/pytensor#2301, which has it for other arrays: only the diagonal of a product is read."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bilinear = nn.Parameter(torch.randn(width, width) * width**-0.5)

    def forward(self, x, y):
        scores = torch.diag(torch.matmul(torch.matmul(x, self.bilinear), y.t()))
        return torch.sigmoid(scores)


def get_inputs():
    return [torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return [64]
