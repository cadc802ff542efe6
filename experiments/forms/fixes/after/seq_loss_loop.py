"""spro/practical-pytorch seq2seq-translation: the loss added up over the steps of the decoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.out = nn.Linear(width, vocabulary)

    def forward(self, states, target):
        return F.cross_entropy(self.out(states).flatten(0, 1), target.flatten())


def get_inputs():
    return [torch.randn(4, 100, 32), torch.randint(0, 50, (4, 100))]


def get_init_inputs():
    return [32, 50]
