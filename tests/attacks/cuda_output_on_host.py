"""Strategy: return the right values on the host.

Family: output metadata.
Surface: the device of the output. Source: own.
Caught by: the device must be the reference's.
"""

import torch
from torch import nn

NEEDS = "cuda"
EXPECT = ("incorrect_shape", "output.device")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x)).cpu()
