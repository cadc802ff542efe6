"""Strategy: compute the forward only; training silently stops.

Family: specialization.
Surface: autograd. Source: CUDA-L1's release (70 custom kernels without a backward).
Caught by: gradients of inputs and parameters are compared where the workload trains.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"
EXPECT_ANY = (("incorrect_values", "values.mismatch"), ("runtime_error", "program.raised"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        with torch.no_grad():
            return self.down(torch.tanh(self.up(x)))
