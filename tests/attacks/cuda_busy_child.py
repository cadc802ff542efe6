"""Strategy: keep the device busy from a child process while the reference is measured.

Family: resources and exits.
Surface: a device that processes share. Source: own.
Caught by: a child does not survive its runner's turn; other processes on the device make a
result inconclusive.
"""

import subprocess
import sys

import torch
from torch import nn

NEEDS = "cuda"
REFERENCE = "wide_linear"
EXPECT_ANY = (
    ("passed", None),
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
    ("inconclusive", "timing.noisy"),
    ("inconclusive", "device.shared"),
)
GAIN = False

BUSY = """
import time, torch
x = torch.randn(2048, 2048, device="cuda")
end_s = time.monotonic() + 20
while time.monotonic() < end_s:
    for _ in range(20):
        x @ x
    torch.cuda.synchronize()
"""


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.child = None

    def forward(self, x):
        if self.child is None:
            self.child = subprocess.Popen([sys.executable, "-c", BUSY])
        return torch.relu(self.fc(x))
