"""In-place operations on temporaries that nobody else holds.

Family: mutation.
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(x).clamp_min_(0)
