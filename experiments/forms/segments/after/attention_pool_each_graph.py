"""A common form, no one source: gates of each graph's nodes go through a softmax, and the weighted nodes are added."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_graphs):
        super().__init__()
        self.num_graphs = num_graphs
        self.gate = nn.Linear(32, 1)

    def forward(self, x, batch):
        gate = self.gate(x).squeeze(1)
        most = gate.new_full((self.num_graphs,), float("-inf"))
        most = most.scatter_reduce(0, batch, gate, "amax")
        weights = (gate - most[batch]).exp()
        total = gate.new_zeros(self.num_graphs).index_add(0, batch, weights)
        alpha = (weights / total[batch])[:, None]
        return torch.zeros(self.num_graphs, x.size(1)).index_add(0, batch, alpha * x)


def get_inputs():
    batch = torch.cat([torch.arange(64), torch.randint(0, 64, (4032,))]).sort().values
    return [torch.randn(4096, 32), batch]


def get_init_inputs():
    return [64]
