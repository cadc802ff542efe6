"""asteroid-team/torch-audiomentations torch_audiomentations/augmentations/shift.py: each sample is shifted by its own offset, then stacked."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels, 1))

    def forward(self, x, shift):
        rolled = []
        for i in range(x.shape[0]):
            rolled.append(torch.roll(x[i], int(shift[i]), dims=-1))
        return torch.stack(rolled) * self.gain


def get_inputs():
    return [torch.randn(128, 2, 64), torch.randint(0, 64, (128,))]


def get_init_inputs():
    return [2]
