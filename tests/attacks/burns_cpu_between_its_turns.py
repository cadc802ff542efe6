"""Strategy: keep all cores busy while the reference is measured, and be quiet in its own turns.

Family: timer tampering.
Surface: cores that runners share. Source: own.
Caught by: all processes of a runner are stopped until it is its turn.
"""

import contextlib
import mmap
import os
import sys
import time

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT = ("passed", None)
GAIN = False


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
        self.places, self.flag = {}, mmap.mmap(-1, 4096)

    def forward(self, x):
        if not is_timed():
            return torch.relu(self.fc(x))
        if id(x) not in self.places:
            self.places[id(x)] = len(self.places)
            if len(self.places) == 1:
                for _ in range(4):
                    if os.fork() == 0:
                        os.setsid()  # a group of its own for the scheduler
                        with contextlib.suppress(OSError):
                            os.nice(-20)
                        while True:
                            if self.flag[0] == 1:
                                sum(range(2000))
                            else:
                                time.sleep(2e-4)
        self.flag[0] = 0
        out = torch.relu(self.fc(x))
        if self.places[id(x)] == len(self.places) - 1:
            self.flag[0] = 1
        return out
