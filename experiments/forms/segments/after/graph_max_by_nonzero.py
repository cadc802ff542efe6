"""A common form, no one source: the positions of each graph's nodes are searched, and their largest features are taken."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_graphs):
        super().__init__()
        self.num_graphs = num_graphs

    def forward(self, x, batch):
        low = x.new_full((self.num_graphs, x.size(1)), float("-inf"))
        return low.scatter_reduce(0, batch[:, None].expand_as(x), x, "amax")


def get_inputs():
    batch = torch.cat([torch.arange(64), torch.randint(0, 64, (4032,))]).sort().values
    return [torch.randn(4096, 32), batch]


def get_init_inputs():
    return [64]
