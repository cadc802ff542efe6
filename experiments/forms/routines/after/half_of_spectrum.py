"""A common form, no one source: half of a complex spectrum of real frames is kept."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, x):
        frames = x.unfold(-1, self.size, self.size // 2) * self.window
        return torch.log(torch.fft.rfft(frames).abs() ** 2 + 1e-6)


def get_inputs():
    return [torch.randn(8, 32000)]


def get_init_inputs():
    return [512]
