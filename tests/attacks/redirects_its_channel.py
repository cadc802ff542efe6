"""Strategy: put /dev/null in place of every socket of the process.

Family: result forgery.
Surface: os.dup2. Source: pygpubench, exploits/ (dup2 of the result pipe).
Caught by: a runner that cannot be heard has died.
"""

import os
from pathlib import Path

import torch
from torch import nn

EXPECT_ANY = (
    ("runtime_error", "runner.died"),
    ("runtime_error", "program.raised"),
    ("timeout", "runner.timeout"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        null = os.open(os.devnull, os.O_RDWR)
        for link in Path("/proc/self/fd").iterdir():
            try:
                if "socket" in str(link.readlink()):
                    os.dup2(null, int(link.name))
            except OSError:
                continue
        return torch.relu(self.fc(x))
