import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, dim, k=20):
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(
            nn.Conv2d(2 * dim, 64, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2)
        )

    def forward(self, x):
        b, c, n = x.shape
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        xx = torch.sum(x**2, dim=1, keepdim=True)
        distance = -xx - inner - xx.transpose(2, 1)
        idx = distance.topk(k=self.k, dim=-1)[1]
        base = torch.arange(0, b, device=x.device).view(-1, 1, 1) * n
        idx = (idx + base).view(-1)
        points = x.transpose(2, 1).contiguous()
        feature = points.view(b * n, -1)[idx, :].view(b, n, self.k, c)
        points = points.view(b, n, 1, c).repeat(1, 1, self.k, 1)
        feature = torch.cat((feature - points, points), dim=3).permute(0, 3, 1, 2).contiguous()
        return self.conv(feature).max(dim=-1)[0]


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(8, 64, 1024 // FACTOR)]
