"""The same mean in one operation.

Family: mutation.
"""

import torch
from torch import nn

REFERENCE = "carries_on"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(300), persistent=False)

    def forward(self, x):
        self.mean = torch.lerp(self.mean, x.mean(0), 0.1)
        return x - self.mean
