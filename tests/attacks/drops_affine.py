"""Strategy: leave out scale and shift, which are one and zero after construction.

Family: work skipping.
Surface: initial parameters. Source: robust-kbench; Makora.
Caught by: all parameters are randomized before the trials.
"""

from torch import nn

REFERENCE = "layer_norm"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:])
