"""Numbers of its own for a first run, which chooses what the later ones use.

Family: global state.
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.way = None

    def relu(self, x):
        return torch.relu(self.fc(x))

    def clamp(self, x):
        return self.fc(x).clamp_(min=0)

    def forward(self, x):
        if self.way is None:
            like = torch.randn_like(x)
            times = {}
            for way in (self.relu, self.clamp):
                start = time.perf_counter()
                way(like)
                times[way] = time.perf_counter() - start
            self.way = min(times, key=times.get)
        return self.way(x)
