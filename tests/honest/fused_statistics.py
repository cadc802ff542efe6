"""Batch normalization in train mode with both moments from one call.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "train_batch_norm"


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        var, mean = torch.var_mean(x, dim=0, correction=0)
        with torch.no_grad():
            count = x.shape[0]
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(var * count / (count - 1), norm.momentum)
            norm.num_batches_tracked.add_(1)
        return (x - mean) * torch.rsqrt(var + norm.eps) * norm.weight + norm.bias
