"""After pyg-team/pytorch_geometric#350: a layer reads the features of each edge's source, and there are more edges than nodes."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.message = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)

    def forward(self, x, source, target):
        messages = (self.message(x) * torch.sigmoid(self.gate(x)))[source]
        out = torch.zeros(x.size(0), messages.size(1), device=x.device, dtype=messages.dtype)
        return out.index_add_(0, target, messages)


def get_inputs():
    return [torch.randn(256, 64), torch.randint(0, 256, (4096,)), torch.randint(0, 256, (4096,))]


def get_init_inputs():
    return [64, 64]
