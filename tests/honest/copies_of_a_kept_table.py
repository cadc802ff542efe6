"""Tables that are computed once, and copied for every caller.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "position_bias"


class ModelNew(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.embedding = nn.Embedding(length, dim)
        self.biases = {}

    def forward(self, x):
        length = x.shape[1]
        if length not in self.biases:
            places = torch.arange(length, device=x.device)
            self.biases[length] = torch.exp(-(places[:, None] - places[None, :]).abs().float() / 8)
        return x * 2, self.embedding.weight[:length].clone(), self.biases[length].clone()
