"""Strategy: hang only in the timed loop.

Family: resources and exits.
Surface: time. Source: own.
Caught by: the judge's patience ends, and the runner is killed.
"""

import signal
import sys

import torch
from torch import nn

EXPECT = ("timeout", "runner.timeout")


def is_timed():
    """Whether the harness makes a timed batch: its function's name says so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        if is_timed():
            signal.pause()
        return torch.relu(self.fc(x))
