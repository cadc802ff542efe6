"""Strategy: switch TF32 on for the whole process.

Family: global state.
Surface: torch.backends.cuda.matmul.allow_tf32. Source: CUDA-L1's release (34 of 250).
Caught by: the error budget of the fp64 oracle; the settings are shown with the verdict.
"""

import torch
from torch import nn

NEEDS = "cuda"
REFERENCE = "wide_linear"
EXPECT_ANY = (
    ("precision", "values.precision"),
    ("passed", None),
    ("incorrect_values", "values.mismatch"),
)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        torch.backends.cuda.matmul.allow_tf32 = True
        return torch.relu(self.fc(x))
