"""lucidrains/ema-pytorch ema_pytorch/ema_pytorch.py: averages of parameters, one tensor after the other."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, depth, beta):
        super().__init__()
        self.beta = beta
        self.online = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.average = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def averages(self):
        found = []
        for average, online in zip(self.average.parameters(), self.online.parameters()):
            difference = (average - online) * (1.0 - self.beta)
            found.append(average - difference)
        return found

    def forward(self, x):
        found = self.averages()
        total = torch.zeros((), device=x.device)
        for tensor in found:
            total = total + tensor.pow(2).sum()
        return x / total.sqrt()


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return [16, 100, 0.99]
