"""Strategy: make the first calls slow, so that an adaptive harness takes few samples.

Family: timer tampering.
Surface: the length of the warm-up. Source: pygpubench, pull request 7 (submission_warmup).
Caught by: the number of calls is settled on the reference, and warm-up rounds do not count.
"""

import time

import torch
from torch import nn

EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls < 4:
            time.sleep(0.02)
        return torch.relu(self.fc(x))
