"""A common form, no one source: the log-probability of an action through a one-hot matrix."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, num_actions):
        super().__init__()
        self.num_actions = num_actions

    def forward(self, logits, actions, advantage):
        chosen = -F.cross_entropy(logits, actions, reduction="none")
        return -(chosen * advantage).mean()


def get_inputs():
    return [torch.randn(2048, 400), torch.randint(0, 400, (2048,)), torch.randn(2048)]


def get_init_inputs():
    return [400]
