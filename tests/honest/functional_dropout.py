"""Dropout as a function, which draws what the module draws.

Family: global state.
"""

import torch
from torch import nn

REFERENCE = "dropout"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return nn.functional.dropout(torch.relu(self.fc(x)), 0.3, self.training)
