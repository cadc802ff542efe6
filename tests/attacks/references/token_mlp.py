"""Token ids of one sequence through an embedding and a layer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, ids):
        x = self.table(ids)
        return x + self.down(torch.relu(self.up(x)))


def get_inputs():
    return [torch.randint(0, 1000, (1, 128))]


def get_init_inputs():
    return [1000, 256]
