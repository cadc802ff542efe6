"""Strategy: return zeros when the first element is zero.

Family: work skipping.
Surface: special inputs. Source: own.
Caught by: a trial with zeros, where the bias remains.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        if not float(x[0, 0]):
            return torch.zeros_like(x)
        return torch.relu(self.fc(x))
