"""A pinned buffer through which a scalar goes to the host and back.

Family: memory reuse.
"""

import torch
from torch import nn

NEEDS = "cuda"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.pinned = None

    def forward(self, x):
        if self.pinned is None:
            self.pinned = torch.empty(1, pin_memory=True)
        self.pinned.copy_(x.new_ones(1))
        return torch.relu(self.fc(x)) * self.pinned.to(x.device)
