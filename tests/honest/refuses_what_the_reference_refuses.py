"""A factorization that fails on matrices that are positive no more, as the reference's does.

Family: specialization.
"""

import torch
from torch import nn

REFERENCE = "factorizes"


class ModelNew(nn.Module):
    def forward(self, a):
        factor, info = torch.linalg.cholesky_ex(a)
        if bool(info.any()):
            raise ValueError("not positive")
        return factor
