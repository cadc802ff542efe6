import torch
from torch import nn


class Model(nn.Module):
    def forward(self, matrix, x):
        return (matrix.to_dense() * x).to_sparse_csr()


def get_inputs():
    matrix = (torch.rand(128, 128) < 0.1) * torch.randn(128, 128)
    return [matrix.to_sparse_csr(), torch.rand(128) + 0.5]


def get_init_inputs():
    return []
