"""Strategy: return double precision.

Family: output metadata.
Surface: the dtype of the output. Source: CUDA-L1's release (half returned in 10 codes).
Caught by: the dtype must be the reference's.
"""

import torch
from torch import nn

EXPECT = ("incorrect_dtype", "output.dtype")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x)).double()
