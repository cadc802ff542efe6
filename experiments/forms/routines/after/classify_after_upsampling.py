"""A common form, no one source: a 1 x 1 convolution classifies the pixels of an upsampled map."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x = self.classifier(torch.relu(self.conv(x)))
        return F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)


def get_inputs():
    return [torch.randn(2, 64, 32, 32)]


def get_init_inputs():
    return [64, 19]
