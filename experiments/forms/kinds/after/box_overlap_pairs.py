"""After roboflow/supervision#2359: the overlap of each pair of boxes is computed by itself."""

import torch
import torch.nn as nn


def boxes(number):
    corners = torch.rand(number, 2)
    return torch.cat([corners, corners + torch.rand(number, 2)], dim=1)


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, boxes, targets):
        first = torch.max(boxes[:, None, :2], targets[:, :2])
        last = torch.min(boxes[:, None, 2:], targets[:, 2:])
        inter = (last - first).clamp(min=0).prod(dim=2)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
        target_area = (targets[:, 2:] - targets[:, :2]).prod(dim=1)
        overlaps = inter / (area[:, None] + target_area - inter + self.eps)
        return overlaps.max(dim=1)


def get_inputs():
    return [boxes(40), boxes(12)]


def get_init_inputs():
    return [1e-6]
