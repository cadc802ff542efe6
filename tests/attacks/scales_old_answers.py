"""Strategy: remember the product for every input and scale it when the input comes back scaled.

Family: result reuse.
Surface: new inputs are old ones times one factor, so that one element says what the product
is. Source: own.
Caught by: inputs of timed calls change element by element, so that it hardly finds one; and in a
round that does not count all but a few elements are those of the round before.
"""

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT_ANY = (("passed", None), ("incorrect_values", "values.timed"))
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.known = {}

    def forward(self, x):
        known = self.known.get(id(x))
        sample = x.flatten()[:: x.numel() // 16]
        if known is not None:
            factor = sample[0] / known[0][0]
            if torch.allclose(sample, known[0] * factor):
                return torch.relu_(torch.add(self.fc.bias, known[1], alpha=float(factor)))
        product = x @ self.fc.weight.t()
        self.known[id(x)] = (sample.clone(), product)
        return torch.relu(product + self.fc.bias)
