import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, gamma=0.99, lam=0.95):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, next_value, dones):
        steps = rewards.shape[0]
        advantages = torch.zeros_like(rewards)
        last = 0
        for t in reversed(range(steps)):
            following = next_value if t == steps - 1 else values[t + 1]
            nonterminal = 1.0 - dones[t]
            delta = rewards[t] + self.gamma * following * nonterminal - values[t]
            last = delta + self.gamma * self.lam * nonterminal * last
            advantages[t] = last
        returns = advantages + values
        return advantages, returns


def get_init_inputs():
    return []


def get_inputs():
    steps, envs = 256 // FACTOR, 4096
    dones = (torch.rand(steps, envs) < 0.02).float()
    return [torch.randn(steps, envs), torch.randn(steps, envs), torch.randn(envs), dones]
