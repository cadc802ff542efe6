"""Rows of different lengths, packed: an output that is a tuple of its own kind."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.gru = nn.GRU(i, h, batch_first=True)

    def forward(self, x, lengths):
        p = nn.utils.rnn.pack_padded_sequence(
            x, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, h = self.gru(p)
        return out, h


def get_inputs():
    return [torch.randn(5, 12, 16), torch.tensor([12, 3, 7, 7, 1])]


def get_init_inputs():
    return [16, 24]
