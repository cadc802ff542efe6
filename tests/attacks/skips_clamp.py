"""Strategy: drop the ReLU, since the benchmark's inputs and weights make all values positive.

Family: work skipping.
Surface: the distribution of the inputs. Source: KernelBench v0.1, robust-kbench.
Caught by: trials with other scales and signs than the workload's own.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = self.fc(x)
        return torch.relu(out) if x.min() >= 0 else out
