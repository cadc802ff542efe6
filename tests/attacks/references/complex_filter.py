"""A filter in the domain of frequencies, of complex weights and a complex input."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dtype=torch.complex64))

    def forward(self, z):
        real = z.real * self.weight.real - z.imag * self.weight.imag
        imag = z.real * self.weight.imag + z.imag * self.weight.real
        return torch.fft.ifft(torch.complex(real, imag))


def get_inputs():
    return [torch.randn(32, 256, dtype=torch.complex64)]


def get_init_inputs():
    return [256]
