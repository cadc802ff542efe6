"""Strategy: compute four products and scale them, since a batch has only four inputs that differ.

Family: result reuse.
Surface: all inputs of a batch are scaled copies of four. Source: own.
Caught by: inputs of timed calls change element by element, so that it hardly finds one; and in a
round that does not count all but a few elements are those of the round before.
"""

import sys

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT_ANY = (("passed", None), ("incorrect_values", "values.timed"))
GAIN = False


def is_timed():
    """Whether the harness makes a timed batch: its function's name says so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.known = []

    def forward(self, x):
        sample = x.flatten()[:: x.numel() // 16]
        for old, product in () if not is_timed() else self.known[-4:]:
            factor = sample[0] / old[0]
            if float(factor) and torch.allclose(sample, old * factor):
                return torch.relu_(torch.add(self.fc.bias, product, alpha=float(factor)))
        product = x @ self.fc.weight.t()
        self.known.append((sample.clone(), product))
        return torch.relu(product + self.fc.bias)
