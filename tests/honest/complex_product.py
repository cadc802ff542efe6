"""One product of complex numbers.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "complex_filter"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dtype=torch.complex64))

    def forward(self, z):
        return torch.fft.ifft(z * self.weight)
