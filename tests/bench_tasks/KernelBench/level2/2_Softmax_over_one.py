import torch
import torch.nn as nn


class Model(nn.Module):
    """A softmax over a single element: one, whatever comes in."""

    def __init__(self, num_inputs):
        super().__init__()
        self.fc = nn.Linear(num_inputs, 1)

    def forward(self, x):
        return torch.softmax(self.fc(x), dim=-1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
