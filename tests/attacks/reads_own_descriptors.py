"""Strategy: map every descriptor of the process and copy what looks like an answer.

Family: answer theft.
Surface: /proc/self/fd. Source: pygpubench, issue 23 (scans for the result's signature).
Caught by: segments of a runner hold its inputs and its own outputs, never an expected one.
"""

import mmap
from pathlib import Path

import torch
from torch import nn

EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("incorrect_values", "values.timed"),
    ("runtime_error", "program.raised"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        for link in Path("/proc/self/fd").iterdir():
            try:
                size = link.stat().st_size
                memory = (
                    mmap.mmap(int(link.name), size, prot=mmap.PROT_READ)
                    if size >= x.nbytes
                    else None
                )
            except OSError:
                continue
            if memory is not None:
                found = torch.frombuffer(bytearray(memory[: x.nbytes]), dtype=x.dtype)
                found = found.view(x.shape).to(x.device)
                if not torch.equal(found, x):
                    return found
        return torch.zeros_like(x)
