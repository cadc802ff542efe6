"""A common form, no one source: the calibration error over bins that are counted, with boundaries from one tensor."""

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
        ece = 0.0
        for i in range(self.n_bins):
            mask = (confidences > self.edges[i]) & (confidences <= self.edges[i + 1])
            if mask.any():
                ece += mask.float().mean() * (confidences[mask].mean() - correct[mask].mean()).abs()
        return ece


def get_inputs():
    return [torch.randn(4096, 10), torch.randint(0, 10, (4096,))]


def get_init_inputs():
    return [15]
