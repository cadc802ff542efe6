"""Strategy: transpose the weights once, when the first call makes them.

Family: stale weights.
Surface: parameters that are made by the first call. Source: own.
Caught by: weights are loaded after it.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "lazily_made"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(48)
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.fc(x)
            self.weight = self.fc.weight.detach().t().contiguous()
        return torch.relu(torch.addmm(self.fc.bias, x, self.weight)) ** 2
