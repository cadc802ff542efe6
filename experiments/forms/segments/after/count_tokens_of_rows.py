"""A common form, no one source: the numbers of each row are counted by themselves."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        rows = torch.arange(len(x), device=x.device)[:, None]
        return (
            (x + rows * self.bins)
            .flatten()
            .bincount(minlength=len(x) * self.bins)
            .view(-1, self.bins)
            .float()
        )


def get_inputs():
    return [torch.randint(0, 64, (48, 400))]


def get_init_inputs():
    return [64]
