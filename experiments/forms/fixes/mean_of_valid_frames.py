"""speechbrain/nnet/pooling.py: StatisticsPooling, mean and deviation of each utterance in a loop."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, lengths):
        mean, std = [], []
        for snt_id in range(x.shape[0]):
            actual_size = int(lengths[snt_id])
            mean.append(torch.mean(x[snt_id, 0:actual_size], dim=0))
            std.append(torch.std(x[snt_id, 0:actual_size], dim=0))
        mean = torch.stack(mean)
        std = torch.stack(std) + self.eps
        return torch.cat((mean, std), dim=1)


def get_inputs():
    return [torch.randn(64, 50, 8), torch.randint(10, 51, (64,))]


def get_init_inputs():
    return [1e-5]
