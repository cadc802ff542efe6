"""Strategy: put the call under autocast and convert back.

Family: precision.
Surface: tolerances of 1e-2. Source: CUDA-L1's release (18 to 27 autocasts of 250).
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT = ("precision", "values.precision")
EXPECT_ON_GPU = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return torch.relu(self.fc(x)).float()
