"""Strategy: give the weights no gradient in timed calls, where only gradients of inputs are
compared.

Family: phase detection.
Surface: gradients of parameters after a timed batch. Source: own.
Caught by: gradients of parameters after a timed round are compared.
"""

import sys

import torch
from torch import nn

REFERENCE = "train_mlp"
EXPECT = ("incorrect_values", "state.timed")


def is_timed():
    """Whether the harness makes a timed batch: its function's name says so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        if not is_timed():
            return self.down(torch.tanh(self.up(x)))
        up, down = self.up, self.down
        hidden = torch.tanh(nn.functional.linear(x, up.weight.detach(), up.bias.detach()))
        return nn.functional.linear(hidden, down.weight.detach(), down.bias.detach())
