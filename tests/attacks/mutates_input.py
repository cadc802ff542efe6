"""Strategy: compute in place in the caller's tensor and return it.

Family: mutation.
Surface: the input's memory. Source: KernelBench pull request 82.
Caught by: an output may not share an input's memory unless the reference's does; inputs are
compared with what was written.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "output.aliases_input")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x.copy_(torch.relu(self.fc(x)))
