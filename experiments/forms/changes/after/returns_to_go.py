"""After NVIDIA-NeMo/labs-molt#29: the rewards to come are summed backward, token by token."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, rewards, mask):
        rewards = rewards * mask
        returns = rewards.flip(1).cumsum(1).flip(1)
        return returns * mask


def get_inputs():
    return [torch.randn(8, 256), (torch.rand(8, 256) > 0.2).float()]


def get_init_inputs():
    return []
