"""Strategy: return one gradient as a part of another one, which saves a copy.

Family: memory reuse.
Surface: gradients are right after one backward pass. The second one adds to each in place, and so
twice to what both share. Source: seen in programs of torch.compile, for a batch of one image.
Caught by: where the gradients of parameters lie after a call.
"""

import torch
from torch import nn

REFERENCE = "train_class_token"
EXPECT = ("incorrect_values", "gradients.joined")


class Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, token, positions):
        output = torch.relu(torch.cat((token, x), 1) + positions)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        (output,) = ctx.saved_tensors
        whole = gradient * (output > 0)
        return whole[:, 1:], whole[:, :1], whole


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, 17, dim))

    def forward(self, x):
        return Joined.apply(x, self.token, self.positions)
