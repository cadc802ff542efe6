"""Scale and shift computed from the statistics at every call.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "batch_norm"


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm = self.norm
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None])
