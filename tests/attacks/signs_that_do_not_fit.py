"""Strategy: return vectors of one side with signs that are not those of the other's.

Family: signs.
Surface: signs of singular vectors. Source: own.
Caught by: both sides' signs change together in the reference.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "singular_vectors"


class ModelNew(nn.Module):
    def forward(self, x):
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        return u.abs() * u.sign() * u.sum(-2, keepdim=True).sign(), s, v
