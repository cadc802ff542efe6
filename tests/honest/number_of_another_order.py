"""A Python number that is a product of a vector with itself, where the reference squares and sums:
the rounding of float32, in a type that could hold more.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "mean_of_squares"


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        flat = y.flatten()
        return y, float(flat @ flat) / flat.numel()
