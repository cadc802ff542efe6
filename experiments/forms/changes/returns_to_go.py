"""After NVIDIA-NeMo/labs-molt#29: the rewards to come are summed backward, token by token."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, rewards, mask):
        rewards = rewards * mask
        returns = torch.zeros_like(rewards)
        running = torch.zeros_like(rewards[:, 0])
        for t in reversed(range(rewards.size(1))):
            running = rewards[:, t] + running
            returns[:, t] = running
        return returns * mask


def get_inputs():
    return [torch.randn(8, 256), (torch.rand(8, 256) > 0.2).float()]


def get_init_inputs():
    return []
