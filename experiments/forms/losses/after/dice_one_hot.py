"""HiLab-git/SSL4MIS utils/losses.py: DiceLoss, one-hot by a list of comparisons, one class at a time."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.n_classes = n_classes

    def forward(self, inputs, target):
        inputs = torch.softmax(inputs, dim=1)
        smooth = 1e-5
        chosen = inputs.gather(1, target).flatten()
        target = target.flatten()
        intersect = chosen.new_zeros(self.n_classes).index_add_(0, target, chosen)
        y_sum = torch.bincount(target, minlength=self.n_classes)
        z_sum = torch.linalg.vector_norm(inputs, dim=(0, 2, 3)).square()
        return (1 - (2 * intersect + smooth) / (z_sum + y_sum + smooth)).mean()


def get_inputs():
    return [torch.randn(2, 8, 128, 128), torch.randint(0, 8, (2, 1, 128, 128))]


def get_init_inputs():
    return [8]
