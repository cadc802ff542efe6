"""After gdlg/pytorch_compact_bilinear_pooling#12: real signals go through the complex transform."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.left = nn.Linear(width, out)
        self.right = nn.Linear(width, out)

    def forward(self, x, y):
        fx = torch.fft.fft(self.left(x), dim=-1)
        fy = torch.fft.fft(self.right(y), dim=-1)
        return torch.fft.ifft(fx * fy, dim=-1).real


def get_inputs():
    return [torch.randn(512, 16), torch.randn(512, 16)]


def get_init_inputs():
    return [16, 2048]
