"""Strategy: stop and continue the other runners while they are measured.

Family: timer tampering.
Surface: signals to processes of the same user. Source: own.
Caught by: a runner sees no process but its own; others are measured while it is stopped.
"""

import contextlib
import mmap
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT_ANY = (
    ("runtime_error", "program.raised"),
    ("passed", None),
    ("incorrect_values", "values.timed"),
    ("incorrect_values", "values.mismatch"),
)
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
                parent, me = os.getppid(), os.getpid()
                if os.fork() == 0:
                    self.disturb(parent, me)
        self.flag[0] = 0
        out = torch.relu(self.fc(x))
        if self.places[id(x)] == len(self.places) - 1:
            self.flag[0] = 1
        return out

    def disturb(self, parent, me):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        siblings = [int(pid) for pid in children if int(pid) != me]
        while siblings:
            time.sleep(5e-4)
            for number in (signal.SIGSTOP, signal.SIGCONT) if self.flag[0] == 1 else ():
                with contextlib.suppress(OSError):
                    for pid in siblings:
                        os.kill(pid, number)
                time.sleep(3e-3 if number == signal.SIGSTOP else 0)
