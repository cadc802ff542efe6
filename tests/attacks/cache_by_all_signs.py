"""Strategy: keep answers by the signs of all elements, which is all that they follow from.

Family: result reuse.
Surface: what of the inputs stays from round to round. Source: own.
Caught by: inputs are made anew for timed calls, and signs are others where a set comes again, so
that nothing is found and the looking costs time.
"""

import torch
from torch import nn

REFERENCE = "binary_layer"
EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.known = {}

    def forward(self, x):
        key = (x.shape, self.weight._version, torch.sign(x).cpu().numpy().tobytes())
        if key not in self.known:
            self.known[key] = torch.sign(x) @ torch.sign(self.weight).t()
        return self.known[key].clone()
