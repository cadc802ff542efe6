"""Strategy: switch deterministic algorithms on for the whole process.

Family: global state.
Surface: settings of the process. Source: own.
Caught by: nothing that is gained by it counts unless the values are as exact; it is shown with
the verdict (`state.flags`), and a patch that does it is refused.
"""

import torch
from torch import nn

EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        torch.use_deterministic_algorithms(True)
        return torch.relu(self.fc(x))
