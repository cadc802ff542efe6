import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


def channel_shuffle(x, groups):
    b, c, h, w = x.shape
    x = x.view(b, groups, c // groups, h, w)
    return torch.transpose(x, 1, 2).contiguous().view(b, c, h, w)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.reduce, self.expand = (
            nn.Linear(channels, channels // 4),
            nn.Linear(channels // 4, channels),
        )

    def forward(self, x):
        y = self.norm(self.depthwise(channel_shuffle(x, 4)))
        y = y * torch.clamp(y + 3, 0, 6) / 6
        s = y.mean(dim=3).mean(dim=2)
        s = torch.clamp(self.expand(torch.clamp(self.reduce(s), min=0)) + 3, 0, 6) / 6
        return x + y * s[:, :, None, None]


def get_init_inputs():
    return [128]


def get_inputs():
    return [torch.randn(32, 128, 56 // FACTOR, 56 // FACTOR)]
