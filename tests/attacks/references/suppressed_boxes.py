"""Non-maximum suppression, box by box, of boxes whose corners are in order."""

import torch
from torch import nn


def overlaps(box, boxes):
    low = torch.maximum(box[:2], boxes[:, :2])
    high = torch.minimum(box[2:], boxes[:, 2:])
    inner = (high - low).clamp(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return inner / ((box[2:] - box[:2]).prod() + areas - inner)


class Model(nn.Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        kept = []
        while len(order):
            kept.append(order[0])
            order = order[1:][overlaps(boxes[order[0]], boxes[order[1:]]) <= 0.5]
        return torch.stack(kept)


def get_inputs():
    corners = torch.rand(64, 2) * 20
    return [torch.cat([corners, corners + 1 + torch.rand(64, 2) * 8], 1), torch.rand(64)]


def get_init_inputs():
    return []
