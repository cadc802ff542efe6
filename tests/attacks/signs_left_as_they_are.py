"""Strategy: leave out the step that makes the signs of vectors definite.

Family: signs.
Surface: signs of singular vectors. Source: own.
Caught by: the reference's output stays when the signs of its vectors are turned around.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "fixed_signs"


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x, full_matrices=False).Vh
