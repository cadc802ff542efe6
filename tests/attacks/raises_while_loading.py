"""Strategy: fail to import.

Family: resources and exits.
Surface: the import. Source: a broken answer of a model, the most frequent of all.
Caught by: it is named after the phase in which it fails.
"""

import torch
from torch import nn

EXPECT = ("compile_error", "program.import")

raise ImportError("no module named fast_kernels")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
