"""After huggingface/transformers#8598: the penalty of each seen token is written by itself."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty

    def forward(self, ids, scores):
        seen = torch.gather(scores, 1, ids)
        seen = torch.where(seen < 0, seen * self.penalty, seen / self.penalty)
        return scores.scatter(1, ids, seen)


def get_inputs():
    return [torch.randint(0, 1000, (8, 64)), torch.randn(8, 1000)]


def get_init_inputs():
    return [1.2]
