"""A scratch buffer kept between calls, of which nothing is returned.

Family: memory reuse.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=self.scratch)
        return torch.relu(self.scratch)
