"""A dictionary of outputs, the second through a product with ones.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "several_outputs"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        hidden = torch.addmm(self.fc.bias, x, self.fc.weight.t())
        pooled = x.new_full((x.shape[0],), 1 / x.shape[0]) @ hidden
        return dict(hidden=hidden, pooled=pooled)  # noqa: C408
