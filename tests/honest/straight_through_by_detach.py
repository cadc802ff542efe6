"""A rounding whose gradient passes, by a difference that is detached.

Family: specialization.
"""

import torch
from torch import nn
from torch.nn import functional as F

REFERENCE = "train_straight_through"


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        q = self.fc.weight / self.scale
        w = (q + (torch.round(q) - q).detach()) * self.scale
        return F.linear(x, w, self.fc.bias)
