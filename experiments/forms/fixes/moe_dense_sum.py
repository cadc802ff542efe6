"""A common form, no one source: every expert on all inputs, mixed in a Python loop."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden, num_experts):
        super().__init__()
        self.gate = nn.Linear(width, num_experts)
        self.w1 = nn.Parameter(torch.randn(num_experts, width, hidden) * 0.1)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden, width) * 0.1)

    def forward(self, x):
        gates = torch.softmax(self.gate(x), dim=-1)
        out = torch.zeros_like(x)
        for i in range(self.w1.shape[0]):
            expert = torch.relu(x @ self.w1[i]) @ self.w2[i]
            out = out + gates[:, i : i + 1] * expert
        return out


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return [32, 32, 128]
