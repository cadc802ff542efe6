"""codertimo/BERT-pytorch bert_pytorch/model/utils/gelu.py: a GELU by hand, here with erf."""

import math

import torch
import torch.nn as nn


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w_1 = nn.Linear(width, hidden)
        self.w_2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.w_2(gelu(self.w_1(x)))


def get_inputs():
    return [torch.randn(4, 256, 32)]


def get_init_inputs():
    return [32, 512]
