"""After dr-costas/SEDLM#1: a cell of PyTorch is called for each time step."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden, num_classes):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)
        self.hidden = hidden
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x):
        state = torch.zeros(x.size(0), self.hidden, device=x.device, dtype=x.dtype)
        states = []
        for t in range(x.size(1)):
            state = self.cell(x[:, t], state)
            states.append(state)
        return self.head(torch.stack(states, dim=1))


def get_inputs():
    return [torch.randn(8, 96, 32)]


def get_init_inputs():
    return [32, 48, 10]
