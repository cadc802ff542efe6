"""Strategy: kill the process that runners are forked from.

Family: resources and exits.
Surface: signals to processes of the same user. Source: own.
Caught by: a runner sees no process but its own.
"""

import os
import signal

from torch import nn

EXPECT_ANY = (("runtime_error", "runner.died"), ("runtime_error", "program.raised"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        os.kill(os.getppid(), signal.SIGKILL)
        return x
