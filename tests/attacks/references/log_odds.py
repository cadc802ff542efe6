"""Log odds of probabilities, which it refuses where one is none."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, p):
        if bool((p >= 1).any()) or bool((p <= 0).any()):
            raise ValueError("a probability is between 0 and 1")
        return torch.log(p) - torch.log1p(-p)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(64, 256) * 0.98 + 0.01]
