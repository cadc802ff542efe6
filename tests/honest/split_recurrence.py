"""The input's part of a recurrent cell for all steps at once.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "recurrent"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.cell = nn.Linear(2 * dim, dim)

    def forward(self, x):
        dim = x.shape[2]
        weight, bias = self.cell.weight, self.cell.bias
        projected = nn.functional.linear(x, weight[:, :dim], bias)
        state = x.new_zeros(x.shape[0], dim)
        for step in projected.unbind(1):
            state = torch.tanh(torch.addmm(step, state, weight[:, dim:].t()))
        return state
