"""After pyg-team/pytorch_geometric#7766: a broadcast product is summed over the channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.source = nn.Parameter(torch.randn(1, width))
        self.target = nn.Parameter(torch.randn(1, width))

    def forward(self, x, edges):
        alpha_source = (x * self.source).sum(dim=-1)
        alpha_target = (x * self.target).sum(dim=-1)
        alpha = alpha_source[edges[0]] + alpha_target[edges[1]]
        return F.leaky_relu(alpha, 0.2)


def get_inputs():
    return [torch.randn(4096, 256), torch.randint(0, 4096, (2, 2048))]


def get_init_inputs():
    return [256]
