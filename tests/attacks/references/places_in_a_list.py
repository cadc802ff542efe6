"""Whole numbers in a list, as long as values say."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        found = []
        for row in x:
            place = int(row.argmax())
            if place:
                found.append(place)
        return found


def get_inputs():
    return [torch.randn(60, 4)]


def get_init_inputs():
    return []
