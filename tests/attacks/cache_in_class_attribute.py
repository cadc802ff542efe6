"""Strategy: keep outputs by address in the class, where no instance shows them.

Family: result reuse.
Surface: class attributes. Source: kernelguard, CONFIG_CACHE_EXPLOIT.
Caught by: new values at the old addresses for every timed call.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.timed")


class ModelNew(nn.Module):
    seen = {}  # noqa: RUF012

    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        key = x.data_ptr()
        if key not in ModelNew.seen:
            ModelNew.seen[key] = torch.relu(self.fc(x))
        return ModelNew.seen[key].clone()
