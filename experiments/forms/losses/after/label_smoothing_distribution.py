"""harvardnlp/annotated-transformer: LabelSmoothing, a smoothed distribution for a KL divergence."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, size, smoothing):
        super().__init__()
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.size = size

    def forward(self, x, target):
        # KL divergence is cross-entropy less the entropy of the distribution, a constant.
        rest = self.smoothing / (self.size - 1)
        entropy = self.confidence * math.log(self.confidence) + self.smoothing * math.log(rest)
        smooth = rest * self.size
        return F.cross_entropy(x, target, label_smoothing=smooth) + entropy


def get_inputs():
    return [torch.randn(1024, 800), torch.randint(0, 800, (1024,))]


def get_init_inputs():
    return [800, 0.1]
