"""timm/data/mixup.py: one_hot, and timm/loss/cross_entropy.py: SoftTargetCrossEntropy, without mixing."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, logits, target):
        return F.cross_entropy(logits, target)


def get_inputs():
    return [torch.randn(1024, 1000), torch.randint(0, 1000, (1024,))]


def get_init_inputs():
    return [1000]
