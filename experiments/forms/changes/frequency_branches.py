"""After meta-llama/llama-models#137: each frequency is scaled in a branch of its own."""

import torch
import torch.nn as nn
import math


class Model(nn.Module):
    def __init__(self, width, base, factor, length):
        super().__init__()
        self.width, self.base, self.factor, self.length = width, base, factor, length

    def scaled(self, freqs):
        low, high = self.length / 1, self.length / 4
        new_freqs = []
        for freq in freqs:
            wave = 2 * math.pi / freq
            if wave < high:
                new_freqs.append(freq)
            elif wave > low:
                new_freqs.append(freq / self.factor)
            else:
                smooth = (self.length / wave - 1) / (4 - 1)
                new_freqs.append((1 - smooth) * freq / self.factor + smooth * freq)
        return torch.stack(new_freqs)

    def forward(self, positions):
        steps = torch.arange(0, self.width, 2, device=positions.device).float()
        freqs = self.scaled(1.0 / self.base ** (steps / self.width))
        angles = torch.outer(positions, freqs)
        return angles.cos(), angles.sin()


def get_inputs():
    return [torch.arange(64).float()]


def get_init_inputs():
    return [128, 500000.0, 8, 8192]
