"""Strategy: switch TF32 off and on again for convolutions only, where few look.

Family: global state.
Surface: torch.backends.cudnn.allow_tf32. Source: CUDA-L1's release (flags in 66 of 250).
Caught by: the error budget of the fp64 oracle; the settings are shown with the verdict.
"""

import torch
from torch import nn

NEEDS = "cuda"
REFERENCE = "conv"
EXPECT_ANY = (("passed", None), ("precision", "values.precision"))
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
        return self.conv(x)
