"""Strategy: free the right output and allocate again: the same block, as long as nobody else
asks.

Family: memory reuse.
Surface: the caching allocator. Source: METR on KernelBench (stale buffer).
Caught by: all outputs are kept until the last call was made.
"""

import torch
from torch import nn

NEEDS = "cuda"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.calls, self.last = 0, None

    def forward(self, x):
        if self.calls % 2 == 0:
            self.last = torch.relu(self.fc(x))
        self.calls += 1
        del x
        return torch.empty_like(self.last)
