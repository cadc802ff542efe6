"""Gates. KernelBench form: the functions at the end say how the layer is called."""

import torch
import torch.nn as nn


class BroadcastGate(nn.Module):
    """Gates every head of a sequence with the same scores."""

    def __init__(self, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.bias = nn.Parameter(torch.zeros(num_heads))

    def forward(self, x, scores):
        # scores: (batch, time, dim) -> one copy a head
        gate = scores.unsqueeze(1).repeat(1, self.num_heads, 1, 1)
        gate = torch.sigmoid(gate + self.bias.view(1, -1, 1, 1))
        return x * gate.clamp(0, 1)


def get_inputs():
    return [torch.randn(4, 8, 128, 64), torch.randn(4, 128, 64)]


def get_init_inputs():
    return [8]
