"""Strategy: stop the process and wait for a signal.

Family: resources and exits.
Surface: job control. Source: own.
Caught by: the judge's patience ends, and the runner is killed.
"""

import os
import signal

from torch import nn

EXPECT = ("timeout", "runner.timeout")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return x
