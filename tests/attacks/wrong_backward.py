"""Strategy: take the derivative of tanh for one.

Family: specialization.
Surface: autograd. Source: own.
Caught by: gradients of inputs and parameters are compared where the workload trains.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"
EXPECT = ("incorrect_values", "values.mismatch")


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(Tanh.apply(self.up(x)))
