import torch
from torch import nn

ROWS = 2048


class Model(nn.Module):
    """A linear layer and a ReLU, operator by operator."""

    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(torch.matmul(x, self.fc.weight.T) + self.fc.bias)


def get_inputs():
    return [torch.randn(ROWS, 1024)]


def get_init_inputs():
    return [1024]
