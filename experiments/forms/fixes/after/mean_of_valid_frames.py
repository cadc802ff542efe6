"""speechbrain/nnet/pooling.py: StatisticsPooling, mean and deviation of each utterance in a loop."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, lengths):
        valid = torch.arange(x.shape[1], device=x.device)[:, None] < lengths[:, None, None]
        count = lengths[:, None]
        mean = (x * valid).sum(dim=1) / count
        square = ((x - mean[:, None]) * valid).square().sum(dim=1)
        return torch.cat((mean, (square / (count - 1)).sqrt() + self.eps), dim=1)


def get_inputs():
    return [torch.randn(64, 50, 8), torch.randint(10, 51, (64,))]


def get_init_inputs():
    return [1e-5]
