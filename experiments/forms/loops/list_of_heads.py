"""A common form, no one source: a ModuleList of small heads on one state."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, classes, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(width, classes) for _ in range(num_heads)])

    def forward(self, x):
        outputs = []
        for head in self.heads:
            outputs.append(head(x))
        return torch.stack(outputs, dim=1)


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return [32, 10, 200]
