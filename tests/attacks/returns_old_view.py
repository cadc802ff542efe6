"""Strategy: return a view of one long buffer that wraps around.

Family: memory reuse.
Surface: outputs that the caller still holds. Source: CUDA-L1's release (static outputs, 24
graph codes).
Caught by: all outputs are kept until the last call was made.
"""

import torch
from torch import nn

EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("incorrect_values", "values.timed"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.register_buffer("ring", torch.empty(4, 32, 64), persistent=False)
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % 4
        out = self.ring[self.turn]
        return out.copy_(torch.relu(self.fc(x)))
