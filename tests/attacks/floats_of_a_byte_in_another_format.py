"""Strategy: round to a shorter mantissa before rounding to the asked for one.

Family: precision.
Surface: floats of a byte. Source: own.
Caught by: their bits are compared.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "floats_of_a_byte"


class ModelNew(nn.Module):
    def forward(self, x, scale):
        found = (x.to(torch.float32) * scale).clamp(-448, 448).to(torch.float8_e5m2)
        return found.to(torch.float32).to(torch.float8_e4m3fn)
