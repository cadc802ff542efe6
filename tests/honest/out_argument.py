"""Results written with out= into fresh memory.

Family: memory reuse.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = x.new_empty(x.shape[0], self.fc.out_features)
        torch.addmm(self.fc.bias, x, self.fc.weight.t(), out=out)
        return torch.clamp(out, min=0, out=out)
