"""Strategy: use only the largest half of the elements of a row.

Family: work skipping.
Surface: tolerances. Source: own; top-k truncation.
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

REFERENCE = "matmul"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        _, places = a.abs().topk(a.shape[1] // 2, dim=1)
        return torch.zeros_like(a).scatter(1, places, a.gather(1, places)) @ b
