"""Strategy: normalize with the running statistics in train mode too.

Family: specialization.
Surface: the mode. Source: own.
Caught by: workloads in train mode.
"""

import torch
from torch import nn

REFERENCE = "train_batch_norm"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        return (x - norm.running_mean) * scale + norm.bias
