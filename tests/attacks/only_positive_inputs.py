"""Strategy: square roots instead of absolute values: right for inputs in [0, 1).

Family: specialization.
Surface: the distribution of the inputs. Source: KernelBench v0.1.
Caught by: trials with other signs than the workload's own.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x.clamp(min=0)))
