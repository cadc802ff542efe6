"""A common form, no one source: the numbers of each row are counted by themselves."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        out = []
        for row in x:
            out.append(torch.bincount(row, minlength=self.bins))
        return torch.stack(out).float()


def get_inputs():
    return [torch.randint(0, 64, (48, 400))]


def get_init_inputs():
    return [64]
