"""Strategy: quantize weights and inputs to eight bits.

Family: precision.
Surface: tolerances. Source: Makora's taxonomy (quantization).
Caught by: the error budget of the fp64 oracle.
"""

import torch
from torch import nn

EXPECT_ANY = (("precision", "values.precision"), ("incorrect_values", "values.mismatch"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        def quantized(tensor):
            step = tensor.abs().amax().clamp(min=1e-12) / 127
            return (tensor / step).round() * step

        return torch.relu(quantized(x) @ quantized(self.fc.weight).t() + self.fc.bias)
