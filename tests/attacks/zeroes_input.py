"""Strategy: destroy the input after use, so that a reference that runs later sees zeros.

Family: mutation.
Surface: the input's memory. Source: KernelBench pull request 82 (zero_out_kernel).
Caught by: every runner has its own copy of the inputs, compared with what was written.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "input.mutated")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.relu(self.fc(x))
        x.zero_()
        return out
