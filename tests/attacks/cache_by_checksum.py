"""Strategy: remember outputs by a checksum of a coarse sample.

Family: result reuse.
Surface: a checksum. Source: flashinfer-bench-starter-kit issue 21.
Caught by: the rounded checksum of small inputs is that of zeros.
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
        key = round(float(x[::4].sum()), -2)
        if key not in self.seen:
            self.seen[key] = torch.relu(self.fc(x))
        return self.seen[key].clone()
