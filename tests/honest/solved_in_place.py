"""The same steps in place, with the norm that stops them taken once.

Family: precision.
"""

import torch
from torch import nn

REFERENCE = "solved_by_steps"


class ModelNew(nn.Module):
    def forward(self, a, b):
        matrix = torch.addmm(
            torch.eye(len(a), device=a.device, dtype=a.dtype), a, a.t(), alpha=1 / a.shape[1]
        )
        x, least = torch.zeros_like(b), 1e-6 * b.norm()
        for _ in range(200):
            step = torch.addmv(b, matrix, x, alpha=-1).mul_(0.2)
            x += step
            if step.norm() < least:
                break
        return x
