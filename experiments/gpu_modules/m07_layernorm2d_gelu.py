import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm2d(nn.Module):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight, self.bias, self.eps = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
            eps,
        )

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.dw = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = LayerNorm2d(channels)
        self.pw1, self.pw2 = (
            nn.Conv2d(channels, 4 * channels, 1),
            nn.Conv2d(4 * channels, channels, 1),
        )
        self.gamma = nn.Parameter(1e-6 * torch.ones(channels, 1, 1))

    def forward(self, x):
        y = self.pw2(F.gelu(self.pw1(self.norm(self.dw(x)))))
        return x + self.gamma * y


def get_init_inputs():
    return [96]


def get_inputs():
    return [torch.randn(16, 96, 56, 56)]
