"""After JohnGiorgi/DeCLUTR#191: the means of the positives of each anchor are taken chunk by chunk."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_positives):
        super().__init__()
        self.num_positives = num_positives

    def forward(self, anchors, positives):
        means = positives.view(-1, self.num_positives, positives.size(1)).mean(dim=1)
        return anchors @ means.T


def get_inputs():
    return [torch.randn(64, 32), torch.randn(128, 32)]


def get_init_inputs():
    return [2]
