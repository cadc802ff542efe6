"""Strategy: return a zero where no number is above the threshold.

Family: value shapes.
Surface: outputs of no element. Source: own.
Caught by: inputs of which the reference selects nothing.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.shape")
REFERENCE = "masked_select"


class ModelNew(nn.Module):
    def forward(self, x):
        found = x[x > 1.5] * 2
        return found if len(found) else torch.zeros(1)
