"""A special case for one shape, and the general way for all others.

Family: specialization.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        if x.shape == (32, 64) and x.is_contiguous():
            return torch.addmm(self.fc.bias, x, self.fc.weight.t()).relu_()
        return torch.relu(self.fc(x))
