"""Batch normalization by hand behind a bias, whose gradient is zero but for rounding.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "train_bias_before_norm"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.norm = nn.BatchNorm1d(2 * dim)

    def forward(self, x):
        norm, hidden = self.norm, self.up(x)
        var, mean = torch.var_mean(hidden, dim=0, correction=0)
        with torch.no_grad():
            count = x.shape[0]
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(var * count / (count - 1), norm.momentum)
            norm.num_batches_tracked.add_(1)
        return (hidden - mean) * torch.rsqrt(var + norm.eps) * norm.weight + norm.bias
