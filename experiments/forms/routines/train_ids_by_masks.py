"""After open-mmlab/mmdetection3d#489: a mask for each label writes its new number."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.num_labels = labels
        self.register_buffer("train_ids", torch.arange(labels).flip(0) % 19)

    def forward(self, labels):
        out = torch.full_like(labels, 255)
        for k in range(self.num_labels):
            out[labels == k] = self.train_ids[k]
        return out


def get_inputs():
    return [torch.randint(0, 34, (2, 128, 128))]


def get_init_inputs():
    return [34]
