"""Strategy: give the inputs their gradient and the weights none.

Family: specialization.
Surface: autograd. Source: own; the cheaper half of a backward.
Caught by: gradients of parameters are compared in the trials.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        hidden = torch.tanh(nn.functional.linear(x, self.up.weight.detach(), self.up.bias))
        return self.down(hidden)
