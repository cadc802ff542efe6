"""Strategy: return the least number of the dtype where the mask is, and zeros for all scores.

Family: precision.
Surface: in float64 the least number is another one, so that there was no oracle, and any score was
small beside it. Source: own.
Caught by: what a mask wrote does not count for the magnitude of an output, and the largest number
of a dtype is the same in any dtype.
"""

import torch
from torch import nn

REFERENCE = "scores_masked_by_the_least_number"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x, mask):
        return torch.zeros(mask.shape, device=x.device).masked_fill_(mask, torch.finfo(x.dtype).min)
