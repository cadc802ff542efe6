"""SamLynnEvans/Transformer Embed.py: PositionalEncoder, its table filled by two nested Python loops."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.d_model = d_model

    def forward(self, x):
        seq_len = x.size(1)
        pe = torch.zeros(seq_len, self.d_model)
        for pos in range(seq_len):
            for i in range(0, self.d_model, 2):
                pe[pos, i] = math.sin(pos / (10000 ** (i / self.d_model)))
                pe[pos, i + 1] = math.cos(pos / (10000 ** (i / self.d_model)))
        x = x * math.sqrt(self.d_model)
        return x + pe.unsqueeze(0).to(x.device)


def get_inputs():
    return [torch.randn(4, 40, 32)]


def get_init_inputs():
    return [32]
