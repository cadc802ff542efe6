"""After DCurro/CannyEdgePytorch#1: each channel goes through the same filters by itself."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
        self.register_buffer("across", across[None, None])
        self.register_buffer("down", across.T.contiguous()[None, None])

    def forward(self, x):
        flat = x.flatten(0, 1).unsqueeze(1)
        grad_x = F.conv2d(flat, self.across, padding=1)
        grad_y = F.conv2d(flat, self.down, padding=1)
        return torch.sqrt(grad_x.pow(2) + grad_y.pow(2) + 1e-6).view_as(x)


def get_inputs():
    return [torch.rand(2, 32, 24, 24)]


def get_init_inputs():
    return []
