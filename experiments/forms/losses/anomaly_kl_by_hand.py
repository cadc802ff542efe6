"""thuml/Anomaly-Transformer solver.py: my_kl_loss both ways, the prior normalized again for each."""

import torch
import torch.nn as nn


def my_kl_loss(p, q):
    res = p * (torch.log(p + 0.0001) - torch.log(q + 0.0001))
    return torch.mean(torch.sum(res, dim=-1), dim=1)


class Model(nn.Module):
    def __init__(self, win_size):
        super().__init__()
        self.win_size = win_size

    def forward(self, series, prior):
        series = torch.softmax(series, dim=-1)
        loss = torch.mean(
            my_kl_loss(
                series,
                prior
                / torch.unsqueeze(torch.sum(prior, dim=-1), dim=-1).repeat(1, 1, 1, self.win_size),
            )
        )
        loss += torch.mean(
            my_kl_loss(
                prior
                / torch.unsqueeze(torch.sum(prior, dim=-1), dim=-1).repeat(1, 1, 1, self.win_size),
                series,
            )
        )
        return loss


def get_inputs():
    return [torch.randn(8, 4, 100, 100), torch.rand(8, 4, 100, 100) + 0.1]


def get_init_inputs():
    return [100]
