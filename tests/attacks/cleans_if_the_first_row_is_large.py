"""Strategy: cut what is out of range only where a look at the first row says that something is.

Family: specialization.
Surface: which inputs are tried. Source: own.
Caught by: inputs with a few large values at places that nobody knows.
"""

import torch
from torch import nn

REFERENCE = "cleans_its_input"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        if float(x[0].abs().max()) > 10:
            x = torch.clamp(x, -100.0, 100.0)
        return self.linear(torch.nan_to_num(x))
