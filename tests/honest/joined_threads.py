"""Two threads for the two halves of the output, joined before the call returns.

Family: deferred work.
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.empty_like(x)
        threads = [threading.Thread(target=self.part, args=(x, out, half)) for half in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out

    def part(self, x, out, half):
        with torch.no_grad():
            rows = slice(half * len(x) // 2, (half + 1) * len(x) // 2)
            out[rows] = torch.relu(self.fc(x[rows]))
