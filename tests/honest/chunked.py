"""Chunks of rows one after the other, to save memory.

Family: work skipping.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.cat([torch.relu(self.fc(rows)) for rows in x.split(10)])
