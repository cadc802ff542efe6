"""adambielski/siamese-triplet utils.py: AllPositivePairSelector, pairs from itertools.combinations."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, target):
        i, j = torch.triu_indices(len(target), len(target), 1, device=target.device)
        distance = (embeddings[i] - embeddings[j]).pow(2).sum(1)
        negative_loss = torch.relu(self.margin - distance.sqrt()).pow(2)
        return torch.where(target[i] == target[j], distance, negative_loss).mean()


def get_inputs():
    return [torch.randn(96, 16), torch.randint(0, 10, (96,))]


def get_init_inputs():
    return [8.0]
