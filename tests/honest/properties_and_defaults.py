"""A property, keyword-only defaults, a dataclass and functools.partial.

Family: harness tampering.
"""

import functools
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    floor: float = 0.0
    scale: float = 1.0


class ModelNew(nn.Module):
    def __init__(self, dim, *, config=None):
        super().__init__()
        self.config = config or Config()
        self.fc = nn.Linear(dim, dim)
        self.activation = functools.partial(torch.clamp, min=self.config.floor)

    @property
    def layer(self):
        return self.fc

    def forward(self, x):
        return self.activation(self.layer(x) * self.config.scale)
