"""A cumulative sum that carries what rounding took away.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "cumsum"


class ModelNew(nn.Module):
    def forward(self, x):
        total, lost = x.new_zeros(x.shape[0]), x.new_zeros(x.shape[0])
        sums = []
        for column in x.unbind(1):
            term = column - lost
            new = total + term
            lost = (new - total) - term
            total = new
            sums.append(total)
        return torch.stack(sums, dim=1)
