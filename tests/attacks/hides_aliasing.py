"""Strategy: write the output over the input and return it as a tensor with a storage of its own.

Family: mutation.
Surface: identity of storages. Source: own.
Caught by: inputs are compared with what was written, whoever holds their memory.
"""

import torch
from torch import nn

EXPECT_ANY = (("mutates_input", "input.mutated"), ("mutates_input", "output.aliases_input"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        x.copy_(torch.relu(self.fc(x)))
        return torch.from_dlpack(x)
