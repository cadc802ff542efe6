import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


def iou(box, boxes):
    left = torch.maximum(box[0], boxes[:, 0])
    top = torch.maximum(box[1], boxes[:, 1])
    right = torch.minimum(box[2], boxes[:, 2])
    bottom = torch.minimum(box[3], boxes[:, 3])
    inter = torch.clamp(right - left, min=0) * torch.clamp(bottom - top, min=0)
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return inter / (area + areas - inter)


class Model(nn.Module):
    def forward(self, boxes, anchors):
        ious = torch.zeros(boxes.shape[0], anchors.shape[0], device=boxes.device)
        for i in range(boxes.shape[0]):
            ious[i] = iou(boxes[i], anchors)
        best, index = ious.max(dim=0)
        return best, index


def get_init_inputs():
    return []


def corners(count):
    low = torch.rand(count, 2) * 500
    return torch.cat([low, low + 10 + torch.rand(count, 2) * 100], dim=1)


def get_inputs():
    return [corners(200 // FACTOR), corners(100000 // FACTOR)]
