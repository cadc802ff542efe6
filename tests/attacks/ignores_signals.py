"""Strategy: block every signal, then hang.

Family: resources and exits.
Surface: signals. Source: own.
Caught by: a runner is killed with SIGKILL.
"""

import signal

from torch import nn

EXPECT = ("timeout", "runner.timeout")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
        while True:
            signal.pause()
