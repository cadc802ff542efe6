"""Strategy: pin the process to one core.

Family: global state.
Surface: scheduling affinity. Source: own; more_threads, the other way round.
Caught by: the call is refused: cores are given to a runner.
"""

import os

import torch
from torch import nn

EXPECT = ("compile_error", "program.import")

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
