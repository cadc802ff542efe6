"""Strategy: return a generator of the output.

Family: deferred work.
Surface: laziness of Python. Source: wafer's field guide.
Caught by: the structure of the output must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return (row for row in torch.relu(self.fc(x)))
