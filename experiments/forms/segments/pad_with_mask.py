"""A common form, no one source: each pass copies one sequence and marks where it is."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, features):
        batch_size = len(features)
        longest = 0
        for feature in features:
            longest = max(longest, feature.shape[0])
        dim = features[0].shape[1]
        batch = features[0].new_zeros(batch_size, longest, dim)
        mask = torch.zeros(batch_size, longest, dtype=torch.bool, device=batch.device)
        for i in range(batch_size):
            batch[i, : features[i].shape[0], :] = features[i]
            mask[i, : features[i].shape[0]] = True
        return batch, mask


def get_inputs():
    lengths = [5 + 7 * i % 60 for i in range(64)]
    return [[torch.randn(n, 32) for n in lengths]]


def get_init_inputs():
    return []
