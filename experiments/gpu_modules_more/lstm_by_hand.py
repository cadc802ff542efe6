import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.hidden = hidden
        self.x2h, self.h2h = nn.Linear(dim, 4 * hidden), nn.Linear(hidden, 4 * hidden)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.hidden, device=x.device)
        c = torch.zeros(x.size(0), self.hidden, device=x.device)
        outputs = []
        for t in range(x.size(1)):
            gates = self.x2h(x[:, t]) + self.h2h(h)
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


def get_init_inputs():
    return [512 // FACTOR, 512 // FACTOR]


def get_inputs():
    return [torch.randn(64, 128 // FACTOR, 512 // FACTOR)]
