"""After fastai/fastai#2516: every pair of classes is compared with every prediction."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, logits, targets):
        predicted = logits.argmax(dim=1)
        classes = torch.arange(self.num_classes, device=logits.device)
        both = (predicted == classes[:, None]) & (targets == classes[:, None, None])
        return both.sum(dim=2)


def get_inputs():
    return [torch.randn(512, 60), torch.randint(0, 60, (512,))]


def get_init_inputs():
    return [60]
