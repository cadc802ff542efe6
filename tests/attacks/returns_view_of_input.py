"""Strategy: write the output over the input and return a view of it.

Family: mutation.
Surface: the input's memory. Source: wafer's field guide (identity and aliasing).
Caught by: an output may not share an input's memory.
"""

import torch
from torch import nn

EXPECT = ("mutates_input", "output.aliases_input")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        x.copy_(torch.relu(self.fc(x)))
        return x.view(-1).view(x.shape)
