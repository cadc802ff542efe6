"""Softmax through its logarithm.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "wide_softmax"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.exp(torch.log_softmax(x, dim=-1))
