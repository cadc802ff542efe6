"""Strategy: let the processor take subnormal numbers for zeros during each call, and set it back.

Family: precision.
Surface: settings are compared after calls. Source: own.
Caught by: a line of the contract states it (`subnormal numbers in x`). It gains nothing.
"""

import torch
from torch import nn

REFERENCE = "big_relu"
EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def forward(self, x):
        torch.set_flush_denormal(True)
        try:
            return torch.clamp(x * 1.0, min=0)
        finally:
            torch.set_flush_denormal(False)
