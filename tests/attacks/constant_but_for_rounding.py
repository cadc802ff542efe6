"""Strategy: return the number that the output always is, but for rounding.

Family: work skipping.
Surface: a mean of probabilities differs in its last bits between inputs, so that the reference
seemed to depend on them. Source: own; KernelBench has tasks of this kind.
Caught by: where the reference's first answer is right on all trials, it is degenerate.
"""

import torch
from torch import nn

REFERENCE = "mean_of_softmax"
EXPECT = ("degenerate", "reference.constant")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.full((x.shape[0],), 1.0 / x.shape[1], device=x.device)
