"""Strategy: remember outputs by a fingerprint that survives noise: the order of a few elements.

Family: result reuse.
Surface: sampled contents. Source: flashinfer-bench-starter-kit issue 21 (input fingerprint
output cache).
Caught by: inputs that are scaled copies of one another have the same fingerprint and other
outputs.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.seen = {}

    def forward(self, x):
        key = tuple(x.flatten()[:: x.numel() // 8].argsort().tolist())
        if key not in self.seen:
            self.seen[key] = torch.relu(self.fc(x))
        return self.seen[key].clone()
