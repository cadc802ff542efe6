"""An autograd.Function with the derivative of tanh from its own output.

Family: work skipping.
"""

import torch
from torch import nn

REFERENCE = "train_mlp"


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        (out,) = ctx.saved_tensors
        return torch.addcmul(gradient, gradient * out, out, value=-1)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(Tanh.apply(self.up(x)))
