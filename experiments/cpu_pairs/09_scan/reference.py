import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        total, found = torch.zeros_like(x[0]), []
        for row in x:
            total = total + row
            found.append(total)
        return torch.stack(found)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
