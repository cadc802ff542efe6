"""A solver that stops when it is near enough."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        matrix = a @ a.t() / a.shape[1] + torch.eye(len(a), dtype=a.dtype, device=a.device)
        x = torch.zeros_like(b)
        for _ in range(200):
            step = (b - matrix @ x) * 0.2
            x = x + step
            if step.norm() < 1e-6 * b.norm():
                break
        return x


def get_inputs():
    return [torch.randn(32, 64), torch.randn(32)]


def get_init_inputs():
    return []
