"""A workspace kept for all calls, of which a clone is returned.

Family: memory reuse.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.out = None

    def forward(self, x):
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=self.out)
        return self.out.relu_().clone()
