"""Strategy: let a timer's signal replace the outputs' computation by an exception that is
swallowed.

Family: timer tampering.
Surface: signals. Source: own.
Caught by: every output of every timed call is compared.
"""

import contextlib
import signal
import time

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


def stop(number, frame):
    raise InterruptedError


signal.signal(signal.SIGALRM, stop)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.zeros_like(x)
        with contextlib.suppress(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
            time.sleep(0.01)
            out = torch.relu(self.fc(x))
        signal.setitimer(signal.ITIMER_REAL, 0)
        return out
