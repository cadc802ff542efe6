import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, x):
        weight = q.dequantize()
        return torch.quantize_per_channel(
            weight * x, weight.abs().amax(1) / 127 + 1e-6, torch.zeros(len(weight)), 0, torch.qint8
        )


def get_inputs():
    weight = torch.randn(32, 64)
    scales = torch.linspace(0.01, 0.05, 32)
    q = torch.quantize_per_channel(weight, scales, torch.zeros(32), 0, torch.qint8)
    return [q, torch.tensor(0.5)]


def get_init_inputs():
    return []
