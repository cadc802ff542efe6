"""Strategy: multiply the parts of complex numbers in half precision.

Family: precision.
Surface: complex outputs. Source: own.
Caught by: the budget of the complex128 oracle.
"""

import torch
from torch import nn

EXPECT = ("precision", "values.precision")
REFERENCE = "complex_filter"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dtype=torch.complex64))

    def forward(self, z):
        parts = torch.view_as_real(self.weight).bfloat16().float()
        return torch.fft.ifft(z * torch.view_as_complex(parts))
