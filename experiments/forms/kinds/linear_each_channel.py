"""After cure-lab/LTSF-Linear models/DLinear.py: each channel has a linear layer of its own, called in a loop."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_steps, num_ahead, num_channels):
        super().__init__()
        self.num_ahead, self.num_channels = num_ahead, num_channels
        self.linears = nn.ModuleList(nn.Linear(num_steps, num_ahead) for _ in range(num_channels))

    def forward(self, x):
        x = x.permute(0, 2, 1)
        ahead = torch.zeros(x.size(0), x.size(1), self.num_ahead, dtype=x.dtype, device=x.device)
        for i in range(self.num_channels):
            ahead[:, i, :] = self.linears[i](x[:, i, :])
        return ahead.permute(0, 2, 1)


def get_inputs():
    return [torch.randn(8, 48, 21)]


def get_init_inputs():
    return [48, 24, 21]
