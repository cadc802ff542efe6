"""After fastai/fastai#2516: every pair of classes is compared with every prediction."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, logits, targets):
        predicted = logits.argmax(dim=1)
        flat = targets * self.num_classes + predicted
        counts = torch.bincount(flat, minlength=self.num_classes**2)
        return counts.view(self.num_classes, self.num_classes)


def get_inputs():
    return [torch.randn(512, 60), torch.randint(0, 60, (512,))]


def get_init_inputs():
    return [60]
