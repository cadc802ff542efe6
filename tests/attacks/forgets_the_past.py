"""Strategy: start the recurrence a few steps before its end.

Family: work skipping.
Surface: fading memory. Source: own.
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

REFERENCE = "recurrent"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("precision", "values.precision"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.cell = nn.Linear(2 * dim, dim)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], x.shape[2])
        for step in x[:, -8:].unbind(1):
            state = torch.tanh(self.cell(torch.cat([step, state], dim=1)))
        return state
