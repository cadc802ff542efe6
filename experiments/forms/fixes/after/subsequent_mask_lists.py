"""A common form, no one source: the mask of later steps from nested Python lists."""

import torch
import torch.nn as nn


def subsequent_mask(size, device):
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


class ModelNew(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def forward(self, scores):
        mask = subsequent_mask(scores.size(-1), scores.device)
        return torch.softmax(scores.masked_fill(~mask, self.fill), dim=-1)


def get_inputs():
    return [torch.randn(4, 128, 128)]


def get_init_inputs():
    return [-1e9]
