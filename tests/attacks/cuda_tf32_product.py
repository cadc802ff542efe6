"""Strategy: compute a product in TF32 and put the setting back.

Family: precision.
Surface: torch.backends.cuda.matmul.allow_tf32, during the call alone. Source: own.
Caught by: the error budget; random rounding of the reference explains no ten bits.
"""

import torch
from torch import nn

NEEDS = "cuda"
REFERENCE = "matmul"
EXPECT_ANY = (("precision", "values.precision"), ("incorrect_values", "values.mismatch"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
