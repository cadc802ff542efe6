"""Gradients are parts of one buffer that do not touch.

Family: memory reuse.
"""

import torch
from torch import nn

REFERENCE = "train_class_token"


class Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, token, positions):
        output = torch.relu(torch.cat((token, x), 1) + positions)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        (output,) = ctx.saved_tensors
        whole = gradient * (output > 0)
        buffer = torch.cat((whole, whole[:, :1]), 1)
        return buffer[:, 1:-1].clone(), buffer[:, -1:], buffer[:, :-1]


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, 17, dim))

    def forward(self, x):
        return Beside.apply(x, self.token, self.positions)
