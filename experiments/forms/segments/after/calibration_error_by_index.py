"""A common form, no one source: the calibration error over bins that are counted, with boundaries from one tensor."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_bins):
        super().__init__()
        self.n_bins = n_bins
        self.register_buffer("edges", torch.linspace(0, 1, n_bins + 1))

    def forward(self, logits, labels):
        confidences, predictions = torch.max(torch.softmax(logits, dim=1), 1)
        hits = (predictions == labels).float()
        index = torch.bucketize(confidences, self.edges) - 1
        gap = confidences.new_zeros(self.n_bins).index_add_(0, index, confidences - hits)
        return gap.abs().sum() / len(labels)


def get_inputs():
    return [torch.randn(4096, 10), torch.randint(0, 10, (4096,))]


def get_init_inputs():
    return [15]
