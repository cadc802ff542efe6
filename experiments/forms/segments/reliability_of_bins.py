"""A common form, no one source: mean accuracy, mean confidence and count of each bin, for a diagram."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_bins):
        super().__init__()
        self.n_bins = n_bins
        self.register_buffer("edges", torch.linspace(0, 1, n_bins + 1))

    def forward(self, logits, labels):
        confidences, predictions = torch.softmax(logits, dim=1).max(dim=1)
        correct = (predictions == labels).float()
        acc, conf, count = (torch.zeros(self.n_bins) for _ in range(3))
        for b in range(self.n_bins):
            in_bin = (confidences > self.edges[b]) & (confidences <= self.edges[b + 1])
            n = in_bin.sum()
            if n > 0:
                acc[b] = correct[in_bin].mean()
                conf[b] = confidences[in_bin].mean()
                count[b] = n
        return acc, conf, count


def get_inputs():
    return [torch.randn(4096, 10), torch.randint(0, 10, (4096,))]


def get_init_inputs():
    return [15]
