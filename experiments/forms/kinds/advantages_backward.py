"""After vwxyzjn/cleanrl ppo.py and its vectorized forms: errors and advantages are computed step by step, backward."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, gamma, smoothing):
        super().__init__()
        self.gamma, self.smoothing = gamma, smoothing

    def forward(self, rewards, values, dones, last_value, last_done):
        advantages = torch.zeros_like(rewards)
        last = 0
        for t in reversed(range(rewards.size(0))):
            if t == rewards.size(0) - 1:
                going = 1.0 - last_done
                following = last_value
            else:
                going = 1.0 - dones[t + 1]
                following = values[t + 1]
            delta = rewards[t] + self.gamma * following * going - values[t]
            advantages[t] = last = delta + self.gamma * self.smoothing * going * last
        return advantages, advantages + values


def get_inputs():
    return [
        torch.randn(128, 8),
        torch.randn(128, 8),
        (torch.rand(128, 8) > 0.95).float(),
        torch.randn(8),
        (torch.rand(8) > 0.95).float(),
    ]


def get_init_inputs():
    return [0.99, 0.95]
