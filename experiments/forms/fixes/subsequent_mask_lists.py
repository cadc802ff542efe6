"""A common form, no one source: the mask of later steps from nested Python lists."""

import torch
import torch.nn as nn


def subsequent_mask(size):
    rows = [[1 if j <= i else 0 for j in range(size)] for i in range(size)]
    return torch.tensor(rows).bool()


class Model(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def forward(self, scores):
        mask = subsequent_mask(scores.size(-1)).to(scores.device)
        return torch.softmax(scores.masked_fill(~mask, self.fill), dim=-1)


def get_inputs():
    return [torch.randn(4, 128, 128)]


def get_init_inputs():
    return [-1e9]
