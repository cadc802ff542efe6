"""After open-mmlab/mmdetection3d#489: a mask for each label writes its new number."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.num_labels = labels
        self.register_buffer("train_ids", torch.arange(labels).flip(0) % 19)

    def forward(self, labels):
        known = (labels >= 0) & (labels < self.num_labels)
        ids = self.train_ids[labels.clamp(0, self.num_labels - 1)]
        return torch.where(known, ids, 255)


def get_inputs():
    return [torch.randint(0, 34, (2, 128, 128))]


def get_init_inputs():
    return [34]
