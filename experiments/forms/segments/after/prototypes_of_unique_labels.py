"""After prototypical networks: one mean of embeddings for each label that is there."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, labels):
        known, index, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        sums = x.new_zeros(len(known), x.size(1)).index_add_(0, index, x)
        return -torch.cdist(x, sums / counts[:, None])


def get_inputs():
    batch = torch.cat([torch.arange(64), torch.randint(0, 64, (4032,))]).sort().values
    return [torch.randn(4096, 32), batch]


def get_init_inputs():
    return []
