"""Strategy: return a hundred thousand tensors.

Family: resources and exits.
Surface: the structure of outputs. Source: own.
Caught by: the structure must be the reference's.
"""

import torch
from torch import nn

EXPECT_ANY = (
    ("incorrect_shape", "output.structure"),
    ("runtime_error", "runner.died"),
    ("timeout", "runner.timeout"),
    ("runtime_error", "program.raised"),
    ("runtime_error", "memory.exhausted"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return [torch.relu(self.fc(x))[0, 0]] * 100_000
