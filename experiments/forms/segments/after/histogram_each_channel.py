"""A common form, no one source: a color histogram of each image and channel."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, images):
        rows = images.flatten(0, 1).flatten(1)
        index = (rows * self.bins).long().clamp(max=self.bins - 1)
        index += torch.arange(len(rows), device=rows.device)[:, None] * self.bins
        counts = index.flatten().bincount(minlength=len(rows) * self.bins)
        return counts.view(*images.shape[:2], self.bins).to(images.dtype)


def get_inputs():
    return [torch.rand(32, 3, 24, 24)]


def get_init_inputs():
    return [64]
