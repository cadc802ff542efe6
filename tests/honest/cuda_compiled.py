"""torch.compile in its default mode.

Family: no real kernel.
"""

import torch
from torch import nn

NEEDS = "cuda"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.compiled = torch.compile(self.plain)

    def forward(self, x):
        return self.compiled(x)

    def plain(self, x):
        return torch.relu(self.fc(x))
