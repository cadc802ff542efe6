"""An autograd.Function of its own that computes the same.

Family: work skipping.
"""

import torch
from torch import nn


class LinearRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        out = torch.addmm(bias, x, weight.t()).clamp_(min=0)
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, out = ctx.saved_tensors
        grad = grad * (out > 0)
        return grad @ weight, grad.t() @ x, grad.sum(0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return LinearRelu.apply(x, self.fc.weight, self.fc.bias)
