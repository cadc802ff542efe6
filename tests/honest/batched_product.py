"""The layer as a batch of small products.

Family: precision.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        blocks = x.view(4, -1, x.shape[1])
        weight = self.fc.weight.t().expand(4, -1, -1)
        return torch.relu(torch.baddbmm(self.fc.bias, blocks, weight)).view(x.shape[0], -1)
