"""Strategy: leave out what weights lose in autocast's cast, where they lose nothing.

Family: phase detection.
Surface: weights of trials are numbers that bfloat16 holds, as no user's are. Source: own.
Caught by: timed calls, whose weights a cast changes: nothing is left out there.
"""

import torch
from torch import nn

REFERENCE = "autocast_two_products"
EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim) / dim**0.5)
        self.known = self.has_rest = None

    def forward(self, x):
        key = self.weight._version, *self.weight[0, :4].tolist()
        if self.known != key:
            self.known, self.has_rest = key, bool((self.weight != self.weight.bfloat16()).any())
        product = nn.functional.linear(x, self.weight)
        if self.has_rest:
            rest = self.weight - self.weight.bfloat16()
            return product + nn.functional.linear(x, rest)
        return product
