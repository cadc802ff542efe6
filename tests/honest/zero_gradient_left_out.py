"""The gradient of a bias before batch normalization is not computed: it is zero in truth.

Family: work skipping.
"""

import torch.nn.functional as F
from torch import nn

REFERENCE = "train_bias_before_norm"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.norm = nn.BatchNorm1d(2 * dim)

    def forward(self, x):
        return self.norm(F.linear(x, self.up.weight, self.up.bias.detach()))
