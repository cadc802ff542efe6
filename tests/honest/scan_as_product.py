"""A cumulative sum as a product with a triangle of ones."""

import torch
from torch import nn

REFERENCE = "cumsum"


class ModelNew(nn.Module):
    def forward(self, x):
        return x @ torch.ones(x.shape[1], x.shape[1]).triu()
