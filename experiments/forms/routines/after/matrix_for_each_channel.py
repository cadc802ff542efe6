"""After pytorch/pytorch#110858: a product broadcasts one matrix for each channel to all samples."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(channels, width, width) * width**-0.5)

    def forward(self, x):
        return torch.tanh(torch.einsum("cij,bcj->bci", self.mix, x)) + x


def get_inputs():
    return [torch.randn(1024, 3, 64)]


def get_init_inputs():
    return [3, 64]
