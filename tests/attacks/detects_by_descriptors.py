"""Strategy: count the shared memory segments of the process before trusting that this is only a
check.

Family: phase detection.
Surface: descriptors that only a timed run has. Source: own.
Caught by: every output of every timed call is compared.
"""

from pathlib import Path

import torch
from torch import nn

NEEDS = "cpu"
EXPECT_ANY = (
    ("incorrect_values", "values.timed"),
    ("incorrect_values", "values.mismatch"),
    ("runtime_error", "program.raised"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.last = None

    def forward(self, x):
        count = 0
        for link in Path("/proc/self/fd").iterdir():
            try:
                count += "memfd" in str(link.readlink())
            except OSError:
                continue
        if count > 2 and self.last is not None:
            return self.last.clone()
        self.last = torch.relu(self.fc(x))
        return self.last.clone()
