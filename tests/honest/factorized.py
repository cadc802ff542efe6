"""Factorize a matrix that is always positive definite.

Family: specialization.
"""

import torch
from torch import nn

REFERENCE = "definite"


class ModelNew(nn.Module):
    def forward(self, covariance, y):
        factor = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return z.square().sum() + 2 * factor.diagonal().log().sum()
