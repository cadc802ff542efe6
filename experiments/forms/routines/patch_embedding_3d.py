"""After huggingface/transformers#45041: a 3-D convolution reads patches that its kernel covers whole."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, patch, width):
        super().__init__()
        self.patch = patch
        self.proj = nn.Conv3d(3, width, (2, patch, patch), stride=(2, patch, patch), bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels):
        x = pixels.view(-1, 3, 2, self.patch, self.patch)
        x = self.proj(x).view(-1, self.proj.out_channels)
        return self.norm(x)


def get_inputs():
    return [torch.randn(256, 1176)]


def get_init_inputs():
    return [14, 256]
