"""After safe-autonomous-systems/fluidgym#8: the field is rolled once for the window of each agent."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size, stride):
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, field):
        windows = []
        for i in range(field.size(-1) // self.stride):
            rolled = torch.roll(field, -i * self.stride, dims=-1)
            windows.append(rolled[..., : self.size])
        return torch.stack(windows, dim=1)


def get_inputs():
    return [torch.randn(4, 3, 16, 96)]


def get_init_inputs():
    return [12, 4]
