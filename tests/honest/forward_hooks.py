"""The activation as a hook of the layer.

Family: harness tampering.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.fc.register_forward_hook(lambda module, args, out: torch.relu_(out))

    def forward(self, x):
        return self.fc(x)
