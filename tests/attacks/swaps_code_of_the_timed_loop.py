"""Strategy: swap the code object of the harness's timed loop.

Family: harness tampering.
Surface: __code__. Source: kernelguard, CODE_REPLACEMENT (submission 514036).
Caught by: outputs of the timed loop are read from shared memory.
"""

import sys

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.timed")


def batch(self, seed, keeps=False):
    return Claim(claim_us=1.0, issue_us=1.0, cold_us=0.0, num_threads=1)  # noqa: F821 - a name of its module


def deliver(self, region):
    return Done()  # noqa: F821 - a name of its module


timed = sys.modules["cudal1_sandboxed.runner.batches"].Batches
timed.batch.__code__ = batch.__code__
timed.deliver.__code__ = deliver.__code__


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
