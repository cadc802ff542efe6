"""The library's normalization for one whose variance is a difference of large numbers: further from
the reference than its rounding, on other weights too, and nearer to the truth.

Family: precision.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "one_pass_variance"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],), self.weight, None, 1e-5)
