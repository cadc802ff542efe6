"""Strategy: put the weights' gradients off until somebody asks for the parameters.

Family: work off the clock.
Surface: the module's own methods. Source: own.
Caught by: parameters are read where torch keeps them, and not by the module's methods.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"
EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("incorrect_values", "values.gradient"),
    ("incorrect_values", "state.timed"),
)


class Lazily(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, owner):
        ctx.save_for_backward(x, weight)
        ctx.owner = owner
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        ctx.owner.owed.append((gradient, x))
        return gradient @ weight, None, None, None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.owed = []

    def forward(self, x):
        return Lazily.apply(torch.tanh(self.up(x)), self.down.weight, self.down.bias, self)

    def zero_grad(self, set_to_none=True):
        self.owed = []
        super().zero_grad(set_to_none)

    def parameters(self, recurse=True):
        with torch.no_grad():
            for gradient, x in self.__dict__.get("owed", []):
                made = (gradient.t() @ x, gradient.sum(0))
                for one, new in zip((self.down.weight, self.down.bias), made, strict=True):
                    one.grad = new if one.grad is None else one.grad + new
        self.owed = []
        return super().parameters(recurse)
