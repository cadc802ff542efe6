"""Strategy: let a forked child write into the output's shared memory later.

Family: deferred work.
Surface: processes. Source: own; the background thread where threads are counted.
Caught by: outputs are copied inside of the judge's clock.
"""

import os
import time

import torch
from torch import nn

NEEDS = "cpu"
"""A forked child cannot use its parent's GPU."""
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
        out = torch.zeros(x.shape).share_memory_()
        if os.fork() == 0:
            time.sleep(0.05)
            out.copy_((x @ self.fc.weight.t() + self.fc.bias).clamp(min=0))
            os._exit(0)
        return out
