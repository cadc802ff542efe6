"""Strategy: leave out the border of a convolution.

Family: work skipping.
Surface: the border. Source: own.
Caught by: every element is compared.
"""

from torch import nn

REFERENCE = "conv"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        inner = nn.functional.conv2d(x, self.conv.weight, self.conv.bias)
        return nn.functional.pad(inner, (1, 1, 1, 1))
