import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, adjacency, x):
        return adjacency.to_dense() @ self.fc(x)


def get_inputs():
    adjacency = (torch.rand(256, 256) < 0.05) * torch.rand(256, 256)
    return [adjacency.to_sparse(), torch.randn(256, 32)]


def get_init_inputs():
    return [32]
