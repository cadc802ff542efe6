"""Strategy: look for a tensor of the output's shape among all live objects and return a copy.

Family: answer theft.
Surface: gc.get_objects. Source: pygpubench, pull request 7.
Caught by: the runner holds no expected output: what is found are inputs and parameters.
"""

import gc

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        for value in gc.get_objects():
            if type(value) is torch.Tensor and value.shape == x.shape and value is not x:
                return value.clone()
        return torch.zeros_like(x)
