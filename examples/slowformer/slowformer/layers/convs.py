"""Convolutional stems."""

import torch
import torch.nn as nn


class ConvStem(nn.Module):
    """Three strided convolutions in front of a vision transformer."""

    def __init__(self, dim):
        super().__init__()
        self.conv1 = nn.Conv2d(3, dim // 4, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(dim // 4, dim // 2, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(dim // 2, dim, 3, stride=2, padding=1)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.conv3(x).flatten(2).transpose(1, 2)


class PatchEmbed(nn.Module):
    """Non-overlapping patches as tokens."""

    def __init__(self, dim, patch=16):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)
