"""After roboflow/trackers#524: argmax over channels is slow on a CPU, where max gives the same positions."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        return torch.max(self.head(x), dim=1).indices


def get_inputs():
    return [torch.randn(2, 8, 128, 128)]


def get_init_inputs():
    return [8, 21]
