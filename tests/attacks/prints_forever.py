"""Strategy: print a gigabyte.

Family: resources and exits.
Surface: the log. Source: own.
Caught by: files of a runner have a limit of size.
"""

import os

import torch
from torch import nn

EXPECT_ANY = (
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
    ("timeout", "runner.timeout"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        page = b"x" * 2**24
        for _ in range(64):
            os.write(1, page)
        return torch.relu(self.fc(x))
