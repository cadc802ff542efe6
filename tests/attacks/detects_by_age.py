"""Strategy: compute for a few hundredths of a second after the import, then return a stale
output.

Family: phase detection.
Surface: time since the import. Source: kernelguard, EVALUATOR_MODE_BRANCH.
Caught by: correctness is looked at in every call, early or late.
"""

import time

import torch
from torch import nn

EXPECT_ANY = (
    ("incorrect_values", "values.timed"),
    ("incorrect_values", "values.mismatch"),
    ("incorrect_values", "shape.specialized"),
)

START_S = time.monotonic()


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.last = None

    def forward(self, x):
        if time.monotonic() - START_S > 0.02 and self.last is not None:
            return self.last.clone()
        self.last = torch.relu(self.fc(x))
        return self.last.clone()
