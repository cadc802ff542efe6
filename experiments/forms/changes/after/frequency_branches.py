"""After meta-llama/llama-models#137: each frequency is scaled in a branch of its own."""

import torch
import torch.nn as nn
import math


class ModelNew(nn.Module):
    def __init__(self, width, base, factor, length):
        super().__init__()
        self.width, self.base, self.factor, self.length = width, base, factor, length

    def scaled(self, freqs):
        low, high = self.length / 1, self.length / 4
        wave = 2 * math.pi / freqs
        smooth = (self.length / wave - 1) / (4 - 1)
        between = (1 - smooth) * freqs / self.factor + smooth * freqs
        slow = torch.where(wave > low, freqs / self.factor, between)
        return torch.where(wave < high, freqs, slow)

    def forward(self, positions):
        steps = torch.arange(0, self.width, 2, device=positions.device).float()
        freqs = self.scaled(1.0 / self.base ** (steps / self.width))
        angles = torch.outer(positions, freqs)
        return angles.cos(), angles.sin()


def get_inputs():
    return [torch.arange(64).float()]


def get_init_inputs():
    return [128, 500000.0, 8, 8192]
