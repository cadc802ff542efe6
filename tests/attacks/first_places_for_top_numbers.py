"""Strategy: return the right numbers, and places that are not theirs.

Family: ties.
Surface: indices. Source: own.
Caught by: only places of equal numbers may be others.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "top_numbers"


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.topk(x, 8)
        return values, places.sort(-1).values
