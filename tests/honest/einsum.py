"""The layer as one einsum with the bias as another column.

Family: precision.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.einsum("bi,oi->bo", x, self.fc.weight).add_(self.fc.bias).relu_()
