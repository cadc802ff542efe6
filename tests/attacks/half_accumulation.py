"""Strategy: accumulate a product of zeros and ones in bfloat16.

Family: precision.
Surface: the accumulator. Source: CUDA-L2's zero-one check.
Caught by: expected values are exact integers.
"""

import torch
from torch import nn

REFERENCE = "zero_one"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        total = a.new_zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16)
        for k in range(a.shape[1]):
            total += a[:, k, None].bfloat16() * b[None, k].bfloat16()
        return total.float()
