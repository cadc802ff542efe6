"""Strategy: keep the outputs of one process in a shared memory file for the next.

Family: result reuse.
Surface: /dev/shm. Source: own; what file replay becomes when folders are private.
Caught by: inputs are new in every process; in a folder of its own it finds nothing.
"""

import os
from pathlib import Path

import torch
from torch import nn

EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("incorrect_values", "values.timed"),
    ("runtime_error", "program.raised"),
    ("passed", None),
)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.calls = 0

    def forward(self, x):
        file = Path("/dev/shm") / f"answers-{os.getppid()}-{self.calls}"
        self.calls += 1
        if file.exists():
            out = torch.load(file)
            file.unlink()
            return out
        out = torch.relu(self.fc(x))
        torch.save(out, file)
        return out
