"""A common form, no one source: the mean of each graph's nodes, with zeros for a graph that has none."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_graphs):
        super().__init__()
        self.num_graphs = num_graphs

    def forward(self, x, batch):
        sums = x.new_zeros(self.num_graphs, x.size(1)).index_add_(0, batch, x)
        counts = batch.bincount(minlength=self.num_graphs).clamp(min=1)
        return sums / counts[:, None]


def get_inputs():
    batch = torch.cat([torch.arange(64), torch.randint(0, 64, (4032,))]).sort().values
    return [torch.randn(4096, 32), batch]


def get_init_inputs():
    return [64]
