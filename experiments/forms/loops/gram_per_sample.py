"""pytorch/tutorials advanced_source/neural_style_tutorial.py: gram_matrix, called for each sample."""

import torch
import torch.nn as nn


def gram_matrix(feature):
    c, h, w = feature.size()
    flat = feature.view(c, h * w)
    return torch.mm(flat, flat.t()).div(c * h * w)


class Model(nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 1)

    def forward(self, x):
        features = self.conv(x)
        grams = []
        for i in range(features.size(0)):
            grams.append(gram_matrix(features[i]))
        return torch.stack(grams)


def get_inputs():
    return [torch.randn(128, 3, 8, 8)]


def get_init_inputs():
    return [3, 16]
