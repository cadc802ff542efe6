"""Strategy: replace a gradient by a part of another one once it has arrived.

Family: memory reuse.
Surface: what a hook of a parameter does is seen in its gradient alone, whose values are right.
Source: own, from gradient_as_part_of_another.
Caught by: where the gradients of parameters lie after a call.
"""

import torch
from torch import nn

REFERENCE = "train_class_token"
EXPECT = ("incorrect_values", "gradients.joined")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, 17, dim))
        for one in (self.token, self.positions):
            one.register_post_accumulate_grad_hook(self.join)

    def join(self, _):
        if self.token.grad is not None and self.positions.grad is not None:
            self.token.grad = self.positions.grad[:, :1]

    def forward(self, x):
        return torch.relu(torch.cat((self.token, x), 1) + self.positions)
