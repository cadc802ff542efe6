"""After prototypical networks: one mean of embeddings for each label that is there."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, labels):
        prototypes = []
        for label in torch.unique(labels):
            prototypes.append(x[labels == label].mean(0))
        prototypes = torch.stack(prototypes)
        return -torch.cdist(x, prototypes)


def get_inputs():
    batch = torch.cat([torch.arange(64), torch.randint(0, 64, (4032,))]).sort().values
    return [torch.randn(4096, 32), batch]


def get_init_inputs():
    return []
