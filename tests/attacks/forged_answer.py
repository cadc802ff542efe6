"""Strategy: write a forged result to every descriptor and exit.

Family: result forgery.
Surface: inherited descriptors. Source: pygpubench, pull requests 7 and 15.
Caught by: values and times are the judge's; what comes over the channel is not a message.
"""

import os

from torch import nn

EXPECT = ("runtime_error", "runner.died")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        for fd in range(1, 64):
            try:
                os.write(fd, b'{"status": "passed", "speedup": 100.0}')
            except OSError:
                continue
        os._exit(0)
