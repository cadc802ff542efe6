"""A setting changed for the call alone and put back.

Family: global state.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return torch.relu(self.fc(x))
        finally:
            torch.set_num_threads(threads)
