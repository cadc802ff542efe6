"""A scripted forward, with a buffer that is not part of the state.

Family: no real kernel.
"""

import warnings

import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.addmm(bias, x, weight.t()))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.register_buffer("unused", torch.arange(dim), persistent=False)

    def forward(self, x):
        return linear_relu(x, self.fc.weight, self.fc.bias)
