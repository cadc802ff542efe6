"""Strategy: write the outputs of one process to a file and answer from it in the next.

Family: result reuse.
Surface: a folder that outlives the process. Source: gpu-mode reference-kernels issue 162 (file
replay).
Caught by: inputs are new in every process; in a folder of its own it finds nothing.
"""

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
        file = Path.home() / "answers" / f"{self.calls}.pt"
        self.calls += 1
        if file.exists():
            return torch.load(file)
        file.parent.mkdir(exist_ok=True)
        out = torch.relu(self.fc(x))
        torch.save(out, file)
        return out
