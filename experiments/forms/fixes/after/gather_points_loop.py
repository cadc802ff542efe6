"""A common form, no one source: the points of each cloud by its own index, in a loop."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, points, idx):
        batch = torch.arange(points.size(0), device=points.device)[:, None]
        return self.weight * points[batch, idx]


def get_inputs():
    return [torch.randn(256, 32, 3), torch.randint(0, 32, (256, 8))]


def get_init_inputs():
    return [0.5]
