"""Activations that are computed again in the backward.

Family: work skipping.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"


def hidden(x, weight, bias):
    return torch.tanh(nn.functional.linear(x, weight, bias))


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        ctx.save_for_backward(*args)
        return hidden(*args)

    @staticmethod
    def backward(ctx, gradient):
        args = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            return torch.autograd.grad(hidden(*args), args, gradient)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(Again.apply(x, self.up.weight, self.up.bias))
