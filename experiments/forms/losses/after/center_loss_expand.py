"""KaiyangZhou/pytorch-center-loss center_loss.py: distances to all centers, one of each row is kept."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super().__init__()
        self.num_classes = num_classes
        self.feat_dim = feat_dim
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        batch_size = x.size(0)
        dist = (x - self.centers[labels]).square().sum(dim=1).clamp(min=1e-12, max=1e12)
        rest = batch_size * (self.num_classes - 1) * 1e-12
        return (dist.sum() + rest) / batch_size


def get_inputs():
    return [torch.randn(256, 128), torch.randint(0, 1000, (256,))]


def get_init_inputs():
    return [1000, 128]
