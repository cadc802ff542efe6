"""Strategy: stop a solver at a thousandth instead of a millionth.

Family: precision.
Surface: iterative methods. Source: own.
Caught by: the budget follows the reference's own error.
"""

import torch
from torch import nn

EXPECT_ANY = (("precision", "values.precision"), ("incorrect_values", "values.mismatch"))
REFERENCE = "solved_by_steps"


class ModelNew(nn.Module):
    def forward(self, a, b):
        matrix = a @ a.t() / a.shape[1] + torch.eye(len(a), dtype=a.dtype, device=a.device)
        x = torch.zeros_like(b)
        for _ in range(200):
            step = (b - matrix @ x) * 0.2
            x = x + step
            if step.norm() < 1e-3 * b.norm():
                break
        return x
