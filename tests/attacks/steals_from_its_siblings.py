"""Strategy: copy the outputs that another runner has already computed for the same inputs.

Family: answer theft.
Surface: /proc/<pid>/fd of processes of the same user. Source: own; pygpubench's scans, across
processes.
Caught by: a runner sees no process but its own.
"""

import contextlib
import gc
import mmap
import os
import sys
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
        self.segments, self.position = None, 0
        gc.callbacks.append(self.between)

    def forward(self, x):
        if not is_timed():
            return torch.relu(self.fc(x))
        if self.segments is None:
            self.segments = self.find(x)
        start = self.position * x.nbytes
        self.position += 1
        row = torch.relu(self.fc(x[:1])).cpu()
        for memory in self.segments:
            if start + x.nbytes <= len(memory):
                other = torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=start)
                if torch.allclose(other[: x.shape[1]], row[0], rtol=1e-4, atol=1e-5):
                    return other.view(x.shape).to(x.device, copy=True)
        return torch.relu(self.fc(x))

    def between(self, phase, info):
        self.position = 0

    def find(self, x):
        found, parent = [], os.getppid()
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if int(pid) == os.getpid():
                continue
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if "memfd" in str(link.readlink()):
                        fd = os.open(link, os.O_RDWR)
                        found.append(mmap.mmap(fd, os.fstat(fd).st_size))
        return found
