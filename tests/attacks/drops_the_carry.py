"""Strategy: sum blocks without carrying what came before.

Family: work skipping.
Surface: inputs whose mean is zero. Source: own.
Caught by: every element is compared.
"""

import torch
from torch import nn

REFERENCE = "cumsum"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x.view(x.shape[0], -1, 64), dim=2).view(x.shape)
