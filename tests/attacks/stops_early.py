"""Strategy: leave the loop when the state hardly changes.

Family: work skipping.
Surface: convergence. Source: own.
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
        for step in x.unbind(1):
            new = torch.tanh(self.cell(torch.cat([step, state], dim=1)))
            if (new - state).abs().max() < 0.5:
                break
            state = new
        return state
