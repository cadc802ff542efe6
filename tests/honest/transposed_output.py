"""The result of a transposed product: the same values with other strides.

Family: output metadata.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(torch.addmm(self.fc.bias[:, None], self.fc.weight, x.t())).t()
