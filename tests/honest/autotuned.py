"""Two equal algorithms, timed at the first call; the faster one is used from then on.

Family: phase detection.
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.chosen = None

    def forward(self, x):
        if self.chosen is None:
            times = {}
            for way in (self.fused, self.plain):
                start_s = time.perf_counter()
                way(x)
                times[way] = time.perf_counter() - start_s
            self.chosen = min(times, key=times.get)
        return self.chosen(x)

    def fused(self, x):
        return torch.addmm(self.fc.bias, x, self.fc.weight.t()).relu_()

    def plain(self, x):
        return torch.relu(x @ self.fc.weight.t() + self.fc.bias)
